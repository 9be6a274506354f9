"""Kernels of the user: scheduled for the array as ours; simulator, golden and reference agree bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from custom_cases import BELOW, INT8, SQUARE, call_node, changed, mirror_types, model_of, typed
from numpy.typing import NDArray
from onnx import helper

from epu.compiler import CompiledModule, compile_graph
from epu.custom_ops import CustomCall, CustomKernel, CustomOutput
from epu.errors import UserError
from epu.graph import Fixed, Graph, Quantized
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.onnx_load import save_model
from epu.ranges import save_ranges
from epu.reference import run_reference
from epu.simulator.simulation import simulate

RANGES = {"x": (-4.0, 4.0), "y": (-1.0, 18.0)}


def square_model(rows: int = 6, length: int = 24) -> onnx.ModelProto:
    bias = np.linspace(-1, 1, length).astype(np.float32)
    return model_of([call_node("square", ["x", "bias"], "y")], (rows, length), {"bias": bias})


def below_model(rows: int = 6, length: int = 24) -> onnx.ModelProto:
    return model_of([call_node("below", ["x"], "y")], (rows, length))


def compiled(graph: Graph, product: str = "QC-N", rounding: str = "exact") -> CompiledModule:
    return compile_graph(graph, HWConfig(product=product).machine, rounding=rounding)


def raw_input(module: CompiledModule, seed: int = 0) -> dict[str, NDArray[Any]]:
    tensor = module.graph.tensor("x")
    dtype = tensor.type.dtype if isinstance(tensor.type, Quantized) else "int32"
    limits = np.iinfo(dtype)
    random = np.random.default_rng(seed)
    return {"x": random.integers(limits.min, limits.max, tensor.shape, dtype, endpoint=True)}


def assert_alike(module: CompiledModule, rounding: str = "exact") -> NDArray[Any]:
    raw = raw_input(module)
    (name,) = module.graph.outputs
    ran, golden = simulate(module.program, raw).outputs[name], module.golden(raw)[name]
    expected = run_reference(module.graph, raw, rounding)[name]
    assert np.array_equal(ran, golden)
    assert np.array_equal(ran, expected)
    return ran


@pytest.mark.parametrize("product", ["QC-N", "QC-U"])
@pytest.mark.parametrize(("rows", "length"), [(6, 24), (1, 7), (33, 40)])
@pytest.mark.parametrize("make", [square_model, below_model])
def test_prim_func_runs_on_the_array(make: Any, rows: int, length: int, product: str) -> None:
    module = compiled(typed(make(rows, length), RANGES), product)
    assert assert_alike(module).any()


def test_values_are_what_the_operator_means() -> None:
    module = compiled(typed(square_model(), RANGES))
    x, y = (module.graph.tensor(name) for name in "xy")
    assert isinstance(x.type, Fixed)
    assert isinstance(y.type, Fixed)
    reals = np.random.default_rng(1).uniform(-4, 4, x.shape)
    raw = np.rint(reals * 2.0**x.type.frac).astype(np.int32)
    found = simulate(module.program, {"x": raw}).outputs["y"] * 2.0**-y.type.frac
    assert np.abs(found - (reals**2 + np.linspace(-1, 1, 24))).max() < 2e-7


def test_a_family_kernel_with_a_table_and_an_attribute() -> None:
    scale = {"s": np.float32(0.5), "z": np.int8(0)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantize"),
        call_node("mirror", ["q"], "c", divisor=2),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["y"], name="dequantize"),
    ]
    module = compiled(typed(model_of(nodes, (5, 8), scale), {"x": (-64, 64), "y": (-64, 64)}))
    assert module.graph.tensor("c").type == Quantized("int8", (0.5,), (0,))
    assert_alike(module)


def doubled(shape: tuple[int, ...], factor: int) -> tuple[Any, Any]:
    """A kernel of our element-wise family under the name of one of ours, with its splits."""
    from epu.lowering.split import elementwise_kernel
    from epu.tir_schedules.intrinsics import mulr, sat

    operands = {"X": ("input", shape, "int32")}
    return elementwise_kernel("rescale", shape, "int32", operands, lambda v: sat(mulr(v["X"], factor, 0), "int32"))


@pytest.mark.parametrize("rows", [4, 1500])
def test_bodies_of_one_family_and_name_are_told_apart(rows: int) -> None:
    for factor in (2, 3):

        def kernel(call: CustomCall, factor: int = factor) -> CustomKernel:
            made, splits = doubled(call.inputs[0].shape, factor)
            return CustomKernel(made, {"X": 0}, splits=splits)

        def reference(call: CustomCall, inputs: list[NDArray[np.int64]], factor: int = factor) -> NDArray[Any]:
            return np.clip(inputs[0] * factor, -(2**31), 2**31 - 1)

        ops = changed(BELOW, kernel=kernel, reference=reference)
        assert_alike(compiled(typed(below_model(rows, 600), RANGES, ops)))


def test_quantisation_may_come_from_the_types_rule() -> None:
    kind = Quantized("int8", (0.25,), (3,))
    types = lambda call: CustomOutput(call.inputs[0].shape, "int8", kind)  # noqa: E731
    from custom_cases import MIRROR

    nodes = [call_node("mirror", ["q"], "c")]
    scale = {"s": np.float32(0.5), "z": np.int8(0)}
    first = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantize")
    model = model_of([first, *nodes], (5, 8), scale, output="c")
    model.graph.output[0].type.tensor_type.elem_type = INT8
    graph = typed(model, {"x": (-64, 64)}, changed(MIRROR, types=types))
    assert graph.tensor("c").type == kind
    with pytest.raises(UserError, match="the output is float, or quantised by types or by its readers"):
        typed(model, {"x": (-64, 64)}, changed(MIRROR, types=mirror_types))


def test_ranges_come_from_the_interval_without_calibration() -> None:
    quantize = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="dequantize"),
    ]
    constants = {"s": np.float32(2**-5), "z": np.int8(0), "bias": np.zeros(8, np.float32)}
    graph = typed(model_of([*quantize, call_node("square", ["d", "bias"], "y")], (4, 8), constants), None)
    assert graph.tensor("y").range == (0.0, 16.0)
    assert_alike(compiled(graph))


def test_fraction_bits_may_be_the_operators_own() -> None:
    graph = typed(square_model(), RANGES, changed(SQUARE, frac=lambda call: 16))
    module = compiled(graph)
    assert module.graph.tensor("y").type == Fixed(16)
    assert_alike(module)


def test_rounding_reaches_the_operator() -> None:
    seen: list[str] = []

    def kernel(call: CustomCall) -> CustomKernel:
        seen.append(call.rounding)
        assert SQUARE.kernel is not None
        return SQUARE.kernel(call)

    compiled(typed(square_model(), RANGES, changed(SQUARE, kernel=kernel)), rounding="ort")
    assert set(seen) == {"ort"}


@pytest.mark.parametrize("make", [square_model, below_model])
def test_a_prim_func_larger_than_the_ocm_runs_in_parts(make: Any) -> None:
    module = compiled(typed(make(1200, 600), RANGES))  # 2.9 MB in and 2.9 MB out
    assert module.peak.ocm_bytes <= 4 << 20
    assert_alike(module)


def test_a_part_must_be_smaller_alike() -> None:
    def stubborn(call: CustomCall) -> CustomKernel:
        assert SQUARE.kernel is not None
        whole = replace(call.inputs[0], shape=(1200, 600))
        return SQUARE.kernel(replace(call, inputs=(whole, *call.inputs[1:])))

    graph = typed(square_model(1200, 600), RANGES, changed(SQUARE, kernel=stubborn))
    with pytest.raises(
        UserError, match=r"ONNX node 'custom' .* because the whole exceeds the OCM, found .* Take all shapes"
    ):
        compiled(graph)


def test_a_row_kernel_says_so_where_a_row_does_not_fit_a_pe() -> None:
    graph = typed(below_model(4, 9973), RANGES)
    with pytest.raises(UserError, match=r"custom.*below|below.*custom|QuadricCustomOp"):
        compiled(graph)


def with_body(model: onnx.ModelProto) -> onnx.ModelProto:
    """The meaning of ``square`` in ONNX."""
    nodes = [helper.make_node("Mul", ["a", "a"], ["aa"]), helper.make_node("Add", ["aa", "b"], ["c"])]
    opset = [helper.make_opsetid("", 17)]
    model.functions.append(
        helper.make_function("com.quadric", "QuadricCustomOp", ["a", "b"], ["c"], nodes, opset, ["op_name"])
    )
    return model


@pytest.mark.parametrize("rounding", ["exact", "ort"])
def test_validation_runs_the_body_and_compares_the_node(tmp_path: Path, rounding: str) -> None:
    files = tmp_path / "m.onnx", tmp_path / "m.tranges"
    save_model(with_body(square_model()), files[0])
    save_ranges(RANGES, files[1])
    hw = HWConfig(product="QC-N")
    job = ChimeraJob(files[0], hw, files[1], custom_ops="custom_cases", rounding=rounding, run_directory=tmp_path)
    job.compile()
    result = job.validate_ort_iss({"x": np.random.default_rng(0).uniform(-4, 4, (6, 24)).astype(np.float32)})
    assert result.passed
    (row,) = (row for row in result if row["mode"] == "isolated" and row["Type"] == "Node")
    assert (row["Name"], row["S"]) == ("custom:0", "PASS")
    assert list(row["reasons"]) == ["custom operator"]


def test_a_wrong_body_fails_the_gate(tmp_path: Path) -> None:
    wrong = with_body(square_model())
    wrong.functions[0].node[1].op_type = "Sub"
    files = tmp_path / "m.onnx", tmp_path / "m.tranges"
    save_model(wrong, files[0])
    save_ranges(RANGES, files[1])
    job = ChimeraJob(files[0], HWConfig(product="QC-N"), files[1], custom_ops="custom_cases", run_directory=tmp_path)
    job.compile()
    assert not job.validate_ort_iss().passed


def test_operator_names_in_the_kernel_map() -> None:
    module = compiled(typed(below_model(), RANGES))
    assert [span.nodes for span in module.program.debug.kernels] == [("custom",)]
    assert BELOW.name == "below"
