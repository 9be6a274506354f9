"""compile_graph and what a CompiledModule gives: refusals, golden values, forced tensors, names of the stages."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from attention import attention, sample
from one_node import MACHINES, Case

from epu.compiler import CompiledModule, compile_graph
from epu.errors import CapacityError, UnsupportedNode, UserError
from epu.graph import Float, Graph, Node, Quantized
from epu.lowering.table import LOWERINGS

SMALL = MACHINES["QC-N"]
INT8 = Quantized("int8", (0.05,), (0,))


@pytest.fixture(scope="module")
def module() -> CompiledModule:
    return compile_graph(attention(outputs=("y", "scores")), SMALL, name="head")


def one(op: str, shape: tuple[int, ...] = (4, 8), **attrs: object) -> Graph:
    c = Case(1)
    c.quantized("x", shape)
    c.result(shape, INT8)
    return c.graph(op, **attrs)


# ---- golden and force


def test_golden_names_every_tensor(module: CompiledModule) -> None:
    found = module.golden(sample())
    assert set(found) == {name for node in attention().nodes for name in node.outputs}
    assert all(found[name].shape == module.graph.tensors[name].shape for name in found)


def test_forced_tensors_change_what_follows_alone(module: CompiledModule) -> None:
    plain = module.golden(sample())
    forced = module.golden(sample(), force={"context": plain["context"] ^ 1})
    same = {name for name in plain if np.array_equal(plain[name], forced[name])}
    assert same >= {"q", "k", "v", "kt", "scores", "real_scores", "shares", "weights", "context"}
    assert not same & {"sum", "real_sum", "normal"}


def test_forcing_what_was_found_changes_nothing(module: CompiledModule) -> None:
    plain = module.golden(sample())
    again = module.golden(sample(), force=plain)
    assert all(np.array_equal(plain[name], again[name]) for name in plain)


def test_a_forced_tensor_reaches_readers_through_views() -> None:
    c = Case(4)
    kind = c.quantized("x", (4, 8))
    c.add("w", (8, 8), INT8, c.raw((8, 8), "int8", "random"), True)
    c.tensors["q"] = replace(c.tensors["x"], name="q", type=INT8)
    c.tensors["flat"] = replace(c.tensors["q"], name="flat", shape=(2, 2, 8))
    c.result((2, 2, 8), INT8)
    nodes = [
        Node("first", "QLinearMatMul", ["x", "w"], ["q"]),
        Node("view", "Reshape", ["q"], ["flat"]),
        Node("second", "QLinearMatMul", ["flat", "w"], ["y"]),
    ]
    module = compile_graph(Graph("views", nodes, c.tensors, ["x"], ["y"]), SMALL)
    zeros = module.golden(c.inputs, force={"q": np.zeros((4, 8), np.int8)})
    assert kind.zero_point == (0,)
    assert zeros["q"].any()
    assert not zeros["y"].any()
    np.testing.assert_array_equal(zeros["flat"].ravel(), zeros["q"].ravel())


# ---- the module


def test_names_times_and_peaks(module: CompiledModule) -> None:
    assert module.program.name == "head"
    assert [buffer.name for buffer in module.program.inputs] == ["x"]
    assert [buffer.name for buffer in module.program.outputs] == ["y", "scores"]
    assert list(module.seconds) == [
        "quantize_to_cpu_runnable_fx",
        "relay_to_tir",
        "adapt_and_order",
        "lrm_alloc_loop",
        "ext_split_relay",
        "build_tir",
    ]
    assert 0 < module.peak.ocm_bytes <= SMALL.ocm_bytes
    assert 0 < module.peak.lrm_bytes <= SMALL.lrm_bytes
    assert module.peak.ext_temp_bytes == 0


# ---- refusals


def test_an_output_must_be_computed() -> None:
    graph = replace(one("QLinearAdd"), outputs=["x"])
    graph.nodes[0].inputs.append("x")
    with pytest.raises(UserError, match="graph output 'x' is computed by no kernel .* Remove it"):
        compile_graph(graph, SMALL)


def test_an_unknown_operator_is_named_with_the_remedy() -> None:
    with pytest.raises(UnsupportedNode, match=r"ONNX node 'n' \(Einsum\).*exclude=\['n'\]"):
        compile_graph(one("Einsum"), SMALL)


def test_an_operator_without_kernel_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(LOWERINGS, "QLinearConcat")
    expected = r"ONNX node 'n' \(QLinearConcat\): the EPU has no kernel .*Kernels: .*QLinearConv.*relay.build.*epu cut"
    with pytest.raises(UnsupportedNode, match=expected):
        compile_graph(one("QLinearConcat", axis=0), SMALL)


def products(**changes: Quantized) -> Graph:
    """x times w; ``changes`` of their types."""
    c = Case(1)
    c.add("x", (4, 8), changes.get("x", INT8), c.raw((4, 8), "int8", "random"), False)
    c.add("w", (8, 8), changes.get("w", INT8), c.raw((8, 8), "int8", "random"), "variable" not in changes)
    c.result((4, 8), INT8)
    return c.graph("QLinearMatMul")


ODD = Quantized("int8", (0.05,), (60,))


def test_zero_points_add_only_the_sums_they_need() -> None:
    def ops(graph: Graph) -> list[str]:
        return [node.op for node in compile_graph(graph, SMALL).graph.nodes]

    assert ops(products(x=ODD)) == ["QLinearMatMul"]
    assert ops(products(x=ODD, variable=INT8)) == ["MatMulInteger", "QLinearMatMul"]
    assert ops(products(w=ODD)) == ["MatMulInteger", "QLinearMatMul"]


@pytest.mark.parametrize(("a", "b"), [((3, 4, 8), (2, 8, 8)), ((1, 4, 8), (2, 8, 8))])
def test_leading_dimensions_must_be_equal(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    c = Case(1)
    c.quantized("a", a)
    c.quantized("b", b)
    c.result((*b[:1], 4, 8), INT8)
    with pytest.raises(UnsupportedNode, match=r"ONNX node 'n' .*leading dimensions .*Expand"):
        compile_graph(c.graph("QLinearMatMul"), SMALL)


def test_float_input_without_range() -> None:
    c = Case(1)
    c.add("x", (4, 8), Float(), c.raw((4, 8), "int32", "random"), False)
    c.result((4, 8))
    with pytest.raises(UserError, match="tensor 'x' .*needs a range"):
        compile_graph(c.graph("Relu"), SMALL)


def test_a_constant_that_the_output_cannot_hold() -> None:
    c = Case(1)
    c.real("x", (4,), 1.0)
    c.add("c", (4,), Float(), np.full(4, 99.0, np.float32), True)
    c.result((4,), size=1.0)
    with pytest.raises(
        UnsupportedNode, match=r"ONNX node 'n' \(Add\): constant 'c' must fit the output's format.*Calibrate"
    ):
        compile_graph(c.graph("Add"), SMALL)


# ---- capacity


def test_a_small_ocm_is_refused_with_what_needs_how_much() -> None:
    c = Case(1)
    c.real("x", (1, 4, 20, 15), 1.0)
    c.result((1, 4, 1, 1))
    what = r"ONNX node 'n' \(GlobalAveragePool\): its smallest part needs 1280 bytes of OCM \(X 1200, Y 4, scratch 0\)"
    with pytest.raises(
        CapacityError, match=what + ", the OCM has 1024. Use a larger ocm_size, or cut the model before the node"
    ):
        compile_graph(c.graph("GlobalAveragePool"), replace(SMALL, ocm_bytes=1024))


def test_a_small_lrm_is_refused_with_the_node() -> None:
    what = r"ONNX node 'block/\w+' .*LRM holds 64 bytes per PE; the tile needs 1024 more .*Use a larger lrm_size"
    with pytest.raises(CapacityError, match=what):
        compile_graph(attention(), replace(SMALL, lrm_bytes=64))


def test_compiling_imports_no_other_dialect() -> None:
    """TVM's Relax dialect alone takes seconds to import."""
    source = (
        "import sys, test_compile_graph as t; t.compile_graph(t.products(), t.SMALL)\n"
        "assert 'tvm' in sys.modules and 'tvm.relax' not in sys.modules"
    )
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "kernels")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    subprocess.run([sys.executable, "-c", source], check=True, env=environment)
