"""ONNX to typed graph with ranges: what is attached, and what a missing range is told."""

from __future__ import annotations

import pytest
from onnx import ModelProto, TensorProto, helper

from epu.errors import UnsupportedNode, UserError
from epu.front_end import import_model, to_typed_graph
from epu.graph import Fixed, Float

pytest.importorskip("tvm", reason="the Relay door needs TVM")

RANGES = {"x": (-2.0, 2.0), "d": (-2.0, 2.0), "y": (0.0, 1.0)}


def model_of(op: str) -> ModelProto:
    """x → Quantize → Dequantize → ``op`` → y."""
    scale = helper.make_tensor("s", TensorProto.FLOAT, [], [0.5])
    zero = helper.make_tensor("z", TensorProto.INT8, [], [0])
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantize"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "dequantize"),
        helper.make_node(op, ["d"], ["y"], "last"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "small", values[:1], values[1:], [scale, zero])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_every_float_tensor_has_its_calibrated_range() -> None:
    graph = to_typed_graph(import_model(model_of("Softmax")), RANGES, "small")
    floats = {name: t for name, t in graph.tensors.items() if isinstance(t.type, (Float, Fixed)) and t.data is None}
    assert {name: tensor.range for name, tensor in floats.items()} == RANGES
    assert {tensor.range_source for tensor in floats.values()} == {"tranges"}


@pytest.mark.parametrize(("missing", "node"), [("y", "last"), ("x", "graph input")])
def test_a_missing_range_names_node_and_tensor(missing: str, node: str) -> None:
    ranges = {name: pair for name, pair in RANGES.items() if name != missing}
    with pytest.raises(UserError) as refusal:
        to_typed_graph(import_model(model_of("Softmax")), ranges, "small")
    assert f"'{node}'" in str(refusal.value)
    assert f"'{missing}'" in str(refusal.value)


def test_a_node_that_needs_a_host_is_named() -> None:
    with pytest.raises(UnsupportedNode, match="'last'"):
        to_typed_graph(import_model(model_of("Acosh")), RANGES, "small")
