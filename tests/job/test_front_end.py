"""ONNX to typed graph with ranges: what is attached, and what a missing range is told."""

from __future__ import annotations

import pytest
from onnx import ModelProto, TensorProto, helper

from epu.errors import UnsupportedNode, UserError
from epu.front_end import import_model, to_typed_graph

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


def test_every_float_tensor_has_a_range_and_its_source() -> None:
    graph = to_typed_graph(import_model(model_of("Softmax")), RANGES, "small")
    assert {name: graph.tensor(name).range for name in "xdy"} == {**RANGES, "d": (-64.0, 63.5)}
    assert {name: graph.tensor(name).range_source for name in "xdy"} == {"x": "tranges", "d": "scale", "y": "op"}


def test_without_a_file_the_ranges_follow_from_the_operators() -> None:
    graph = to_typed_graph(import_model(model_of("Softmax")), None, "small")
    assert graph.tensor("y").range == (0.0, 1.0)


def test_a_missing_range_names_node_and_tensor() -> None:
    with pytest.raises(UserError) as refusal:
        to_typed_graph(import_model(model_of("Softmax")), {"x": (-2.0, 2.0), "d": (-2.0, 2.0)}, "small")
    assert "'last'" in str(refusal.value)
    assert "'y'" in str(refusal.value)


def test_a_node_that_needs_a_host_is_named() -> None:
    with pytest.raises(UnsupportedNode, match="'last'"):
        to_typed_graph(import_model(model_of("Acosh")), RANGES, "small")
