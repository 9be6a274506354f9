"""Kernels whose operands exceed the OCM: every family cut along every axis gives the same bytes, and what a cut costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from attention import attention, sample
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from node_cases import FAMILIES, Found, cases
from one_node import Answers, Array, Case, assert_same, machine, observable, run

from epu.compiler import CompiledModule, compile_graph
from epu.errors import CapacityError
from epu.first_fit import ALIGNMENT, FirstFit, align
from epu.graph import Float, Graph, Quantized, Tensor
from epu.ocm_search import Cut, OcmSearch
from epu.passes.recognise_layer_norm import ROLES
from epu.plan import Task, make_plan
from epu.reference import run_reference
from epu.simulator import Machine
from epu.simulator.simulation import simulate
from epu.simulator.transfers import Dma
from epu.staging import slice_of
from epu.validate import Counted, Forcer

ROOMY = machine()
OUT = Quantized("int8", (0.4,), (3,))


def tight(whole: CompiledModule, fraction: float) -> Machine:
    """A machine with a fraction of the OCM that a module takes."""
    return machine(ocm_bytes=max(ALIGNMENT, int(whole.peak.ocm_bytes * fraction) // ALIGNMENT * ALIGNMENT))


def staged(module: CompiledModule) -> list[str]:
    """Kernels whose results left in slices."""
    return [span.name for span in module.program.debug.kernels if span.outputs[0].space == "ext"]


# ---- every family, every axis


def dense(c: Case) -> Found:
    c.quantized("a", (20, 24), "int8", zero=5)
    c.quantized("b", (24, 40), constant=True, axis=1)
    c.result((20, 40), OUT)
    return c.graph("QLinearMatMul"), c.inputs


def batched(c: Case) -> Found:
    c.quantized("a", (6, 20, 16))
    c.quantized("b", (6, 16, 24))
    c.result((6, 20, 24), OUT)
    return c.graph("QLinearMatMul"), c.inputs


def conv(c: Case, groups: int = 2, channels: int = 6, filters: int = 8) -> Found:
    c.quantized("x", (2, groups * channels, 11, 12), "uint8", zero=7)
    c.quantized("w", (groups * filters, channels, 3, 2), constant=True, axis=0)
    c.bias(groups * filters)
    c.result((2, groups * filters, 6, 11), OUT)
    return c.graph("QLinearConv", group=groups, strides=(2, 1), pads=(1, 1, 1, 0), dilations=(1, 2)), c.inputs


def depthwise(c: Case) -> Found:
    return conv(c, groups=10, channels=1, filters=1)


def signal(c: Case) -> Found:
    """One spatial dimension."""
    c.quantized("x", (1, 4, 90))
    c.quantized("w", (8, 4, 5), constant=True)
    c.result((1, 8, 45), OUT)
    return c.graph("QLinearConv", strides=(2,), pads=(2, 2)), c.inputs


def add(c: Case) -> Found:
    """Each operand lacks an axis of the other."""
    c.quantized("a", (9, 1, 40))
    c.quantized("b", (20, 40), zero=3)
    c.result((9, 20, 40), OUT)
    return c.graph("QLinearAdd"), c.inputs


def square(c: Case) -> Found:
    """One tensor as both operands."""
    c.real("x", (500,), 3.0)
    c.node.inputs = ["x", "x"]
    c.result((500,), size=9.0)
    return c.graph("Mul"), c.inputs


def table(c: Case) -> Found:
    c.quantized("x", (1500,))
    tables = {name: c.raw((256,), "int8", "random") for name in ("table", "table_ort")}
    c.tensors["f"] = Tensor("f", (1500,), Float())
    c.result((1500,), OUT)
    return c.graph("QuantizedUnary", **tables, inner={"f": [float(k) for k in range(256)]}), c.inputs


def softmax(c: Case) -> Found:
    """Shares and the dequantised input are observed."""
    c.quantized("x", (5, 14, 48))
    c.tensors["p"], c.tensors["d"] = (Tensor(name, (5, 14, 48), Float()) for name in "pd")
    c.result((5, 14, 48), Quantized("int8", (1 / 256,), (-128,)))
    return c.graph("SoftmaxInt8", axis=-1, probabilities="p", dequantized="d"), c.inputs


def layer_norm(c: Case) -> Found:
    """Every inner tensor is observed."""
    c.real("x", (3, 9, 40), 2.0)
    c.real("gamma", (40,), 2.0, constant=True)
    c.real("beta", (40,), 3.0, constant=True)
    c.result((3, 9, 40))
    for role in ROLES:
        wide = role in ("centred", "square", "normalised", "scaled")
        c.tensors[role] = Tensor(role, (3, 9, 40 if wide else 1), Float())
    return c.graph("LayerNormDecomposed", epsilon=1e-5, **{role: role for role in ROLES}), c.inputs


def mean(c: Case) -> Found:
    c.real("x", (30, 24), 2.0)
    c.result((30, 1))
    return c.graph("ReduceMean", axes=(1,), keepdims=1), c.inputs


def pool(c: Case) -> Found:
    c.quantized("x", (1, 8, 13, 12))
    c.result((1, 8, 7, 6), c.tensors["x"].type)
    return c.graph("MaxPool", kernel_shape=(3, 2), strides=(2, 2), pads=(1, 0, 1, 0)), c.inputs


def transpose(c: Case) -> Found:
    c.quantized("x", (6, 20, 5, 8))
    c.result((5, 6, 8, 20), c.tensors["x"].type)
    return c.graph("Transpose", perm=(2, 0, 3, 1)), c.inputs


AXES: dict[Callable[[Case], Found], str] = {
    dense: "m n mn",
    batched: "b m n bm mn bmn",
    conv: "b g f i j gf bi ij gfi",
    depthwise: "b g i j ij",
    signal: "f j fj",
    add: "d0 d1 d2 d0d1 d1d2",
    square: "d0",
    table: "d0",
    softmax: "m",
    layer_norm: "m",
    mean: "m",
    pool: "p i j ij pi",
    transpose: "d2 d0 d3 d1 d0d1",
}
CUTS = [
    pytest.param(build, axes, id=f"{build.__name__}-{axes}") for build, found in AXES.items() for axes in found.split()
]


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets the search see only cuts along exactly the given axes."""
    every = OcmSearch.cuts

    def restrict(axes: str) -> None:
        def cuts(search: OcmSearch) -> Iterator[Cut]:
            return (cut for cut in every(search) if set(cut.sizes) == names(axes))

        monkeypatch.setattr(OcmSearch, "cuts", cuts)

    return restrict


def names(axes: str) -> set[str]:
    return {f"d{each}" for each in axes.split("d")[1:]} if "d" in axes else set(axes)


@pytest.mark.parametrize(("build", "axes"), CUTS)
def test_same_bytes_along(build: Callable[[Case], Found], axes: str, only: Callable[[str], None]) -> None:
    graph, inputs = build(Case(3))
    whole = compile_graph(graph, ROOMY)
    only(axes)
    answers = smallest(graph, inputs, whole)
    assert staged(answers.module) == ["n"]
    assert sum(span.macs for span in answers.module.program.debug.kernels) == whole.kernels[0].kernel.macs


def smallest(graph: Graph, inputs: dict[str, Array], whole: CompiledModule) -> Answers:
    """The answers on the first machine, of a few, that is large enough."""
    for fraction in (0.3, 0.5, 0.7, 0.85, 0.95):
        try:
            module = compile_graph(graph, tight(whole, fraction))
        except CapacityError:
            continue
        return same_as_reference(module, inputs)
    raise AssertionError("no machine fits")


def same_as_reference(module: CompiledModule, inputs: dict[str, Array]) -> Answers:
    found, reference = run(module, inputs), run_reference(module.graph, inputs, "exact")
    for name in sorted(observable(module)):
        assert_same(name, found.observed[name], reference[name])
    for name, values in found.result.outputs.items():
        assert_same(f"output {name}", values, reference[name])
    assert found.result.peak_ocm <= module.peak.ocm_bytes <= module.program.machine.ocm_bytes
    return found


BUILDERS = [pytest.param(build, id=f"{op}-{k}") for op, found in FAMILIES.items() for k, build in enumerate(found)]


@pytest.mark.parametrize("build", BUILDERS)
def test_any_case_fits_or_is_refused(build: Callable[..., Found]) -> None:
    @settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
    @given(cases(build), st.sampled_from((0.4, 0.6, 0.8, 0.95)))
    def check(case: Found, fraction: float) -> None:
        assume(sum(values.size for values in case[1].values()) <= 4096)  # what is longer takes longer, no more
        small = tight(compile_graph(case[0], ROOMY), fraction)
        try:
            module = compile_graph(case[0], small)
        except CapacityError as error:
            assert f"the OCM has {small.ocm_bytes}" in str(error)  # noqa: PT017
        else:
            same_as_reference(module, case[1])

    check()


# ---- whole graphs


@pytest.fixture(scope="module", params=[1536, 2048, 3072])
def small(request: pytest.FixtureRequest) -> CompiledModule:
    return compile_graph(attention(24, 16, outputs=("y", "scores")), machine(ocm_bytes=request.param), name="head")


@pytest.fixture(scope="module")
def roomy() -> CompiledModule:
    return compile_graph(attention(24, 16, outputs=("y", "scores")), ROOMY, name="head")


def test_a_graph_gives_the_same_tensors_in_any_ocm(small: CompiledModule, roomy: CompiledModule) -> None:
    found, expected = run(small, sample(24, 16)), run(roomy, sample(24, 16))
    assert staged(small)
    assert not staged(roomy)
    for name, values in expected.observed.items():
        assert_same(name, found.observed[name], values)
    for name, values in expected.result.outputs.items():
        assert_same(name, found.result.outputs[name], values)


def test_cycles_and_memory_add_up(small: CompiledModule) -> None:
    result = run(small, sample(24, 16)).result
    assert sum(cycles.total for cycles in result.kernels) == result.cycles.total
    assert result.peak_ocm <= small.peak.ocm_bytes <= small.program.machine.ocm_bytes
    inputs_outputs_constants = sum(
        align(buffer_bytes(each)) for each in (*small.program.inputs, *small.program.outputs)
    )
    inputs_outputs_constants += sum(align(len(each.data)) for each in small.program.constants)
    assert small.peak.ext_temp_bytes == small.program.ext_bytes - inputs_outputs_constants


def buffer_bytes(buffer) -> int:  # type: ignore[no-untyped-def]
    return int(np.prod(buffer.shape)) * {"i8": 1, "u8": 1, "i32": 4, "i64": 8}[buffer.dtype]


def test_forced_tensors_reach_later_readers(small: CompiledModule) -> None:
    rng = np.random.default_rng(0)
    forced = {
        name: rng.integers(-100, 100, values.shape).astype(values.dtype)
        for name, values in small.golden(sample(24, 16)).items()
        if name in {buffer.name for span in small.program.debug.kernels for buffer in span.outputs}
    }
    for chosen in ({}, forced, dict(list(forced.items())[::2]), dict(list(forced.items())[1::2])):
        found = observed(small, chosen)
        golden = small.golden(sample(24, 16), chosen)
        for name, values in found.items():
            assert_same(name, values, golden[name])


def observed(module: CompiledModule, forced) -> dict[str, np.ndarray]:  # type: ignore[no-untyped-def, type-arg]
    from epu.simulator import TapRecorder

    recorder = TapRecorder(module.program)
    simulate(
        module.program,
        sample(24, 16),
        listeners=(recorder, Forcer(forced, Counted("test", 0, len(module.program.debug.kernels), None))),
    )
    return recorder.tensors


def test_a_program_with_parts_survives_its_file(small: CompiledModule) -> None:
    again = type(small.program).from_bytes(small.program.to_bytes())
    assert again == small.program


# ---- what a cut costs


def long_add(ocm_bytes: int) -> CompiledModule:
    c = Case(1)
    c.quantized("a", (96, 1024))
    c.quantized("b", (96, 1024))
    c.result((96, 1024), OUT)
    return compile_graph(c.graph("QLinearAdd"), machine(ocm_bytes=ocm_bytes))


def test_transfers_run_beside_the_parts() -> None:
    """Two places per operand: all but the first slices and the last result hide behind the computation, or it behind them."""
    c = Case(1)
    c.quantized("a", (96, 1024))
    module = long_add(96 << 10)
    values = dict.fromkeys("ab", c.inputs["a"])
    cycles = run(module, values).result.cycles
    assert cycles.overlap > min(cycles.data_external, cycles.total - cycles.data_external) // 2


def test_a_broadcast_operand_comes_once() -> None:
    c = Case(1)
    c.quantized("a", (64, 1024))
    c.quantized("b", (1024,))
    c.result((64, 1024), OUT)
    module = compile_graph(c.graph("QLinearAdd"), machine(ocm_bytes=32 << 10))
    assert run(module, c.inputs).result.ext_read_bytes == 64 * 1024 + 1024


def test_equal_parts_share_their_instructions() -> None:
    module = long_add(96 << 10)
    loads = [str(each) for each in module.program.code if type(each).__name__ == "Alu"]
    assert len(set(loads)) < len(loads) // 2


# ---- refusals


def test_a_row_that_does_not_fit_is_refused() -> None:
    c = Case(1)
    c.real("x", (4, 500), 2.0)
    c.result((4, 500))
    with pytest.raises(CapacityError) as caught:
        compile_graph(c.graph("Softmax", axis=-1), machine(ocm_bytes=4096))
    text = str(caught.value)
    assert text.startswith(
        "ONNX node 'n' (Softmax): its smallest part needs 5120 bytes of OCM (X 2000, EXP2 1024, Y 2000"
    )
    assert "the OCM has 4096" in text
    assert "ocm_size" in text


# ---- slices and places


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(1, 5)), min_size=1, max_size=4),
    st.sampled_from((1, 4)),
)
def test_slice_is_the_box(dims: list[tuple[int, int, int]], size: int) -> None:
    shape = [extent for extent, _, _ in dims]
    region = [(start % extent, min(extent, start % extent + length)) for extent, start, length in dims]
    data = np.arange(int(np.prod(shape)) * size, dtype=np.uint16).reshape(*shape, size)
    piece = slice_of(shape, region, size)
    runs = [data.reshape(-1)[at : at + piece.elem_bytes] for at in starts(piece.offset, piece.counts, piece.strides)]
    expected = data[tuple(slice(*each) for each in region)]
    assert np.array_equal(np.concatenate(runs), expected.reshape(-1))
    assert piece.bytes == expected.size


def starts(offset: int, counts: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    found = [offset]
    for count, stride in zip(counts, strides):
        found = [start + k * stride for start in found for k in range(count)]
    return found


def test_first_fit_takes_all_or_nothing() -> None:
    memory = FirstFit(256)
    assert memory.take({"a": 1, "b": 65}) == {"a": 0, "b": 64}
    assert memory.take({"c": 64, "d": 1}) is None
    assert memory.peak == 192
    memory.give(0, 1)
    assert memory.take({"c": 64, "d": 1}) == {"c": 0, "d": 192}


def task(node: str, reads: str, writes: str) -> Task:
    return Task(node, tuple(reads), tuple(writes), 0, 0, 0)


def test_tensors_in_the_way_move_aside() -> None:
    """b and d stay, each between freed blocks; the double block e has room only once they have moved."""
    tasks = [task("first", "x", "badc"), task("second", "bd", "e"), task("third", "e", "y")]
    sizes = {**dict.fromkeys("xabcdy", 64), "e": 128}
    plan = make_plan(tasks, sizes, {"x": 0, "y": 64}, frozenset("y"), 128, 320)
    places = {name: address for name, (_, address) in plan.steps[1].places.items()}
    taken = sorted((address, address + sizes[name]) for name, address in places.items())
    assert all(end <= start for (_, end), (start, _) in zip(taken, taken[1:]))
    moved = [each for each in plan.steps[1].before if isinstance(each, Dma)]
    assert [each.direction for each in moved] == ["out", "out", "in", "in"]


def test_an_output_with_later_readers_is_written_again_before_it_is_read_back() -> None:
    """Whoever overwrites it in OCM after its kernel must be heard."""
    tasks = [task("first", "x", "y"), task("second", "x", "b"), task("third", "yb", "z")]
    sizes = {"x": 128, "y": 128, "b": 128, "z": 64}
    plan = make_plan(tasks, sizes, {"x": 0, "y": 128, "z": 256}, frozenset("yz"), 384, 320)
    moves = [each for step in plan.steps for each in (*step.before, *step.after) if isinstance(each, Dma)]
    of_y = [each.direction for each in moves if each.ext_addr == 128]
    assert of_y == ["out", "out", "in"]
