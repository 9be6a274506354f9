"""Relay → typed graph: ONNX nodes kept one for one, quantisation in types, and the doors other than our importer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantFormat
from relay_models import Builder, attention, codes, normal, q, qlinear_network, quantised, tables
from tvm import relay

from epu.errors import UnsupportedNode, UserError
from epu.graph import Float, Graph, Integer, Node, Quantized
from epu.relay_passes.import_onnx import import_onnx
from epu.relay_passes.partition import prepare
from epu.relay_passes.to_graph import to_graph


def graph_of(model: onnx.ModelProto) -> Graph:
    module, _, names = import_onnx(model)
    return to_graph(module, "model", names)


def node_of(graph: Graph, name: str) -> Node:
    return next(node for node in graph.nodes if node.name == name)


@pytest.mark.parametrize("network", [qlinear_network, tables, attention])
def test_nodes_are_onnx_nodes_in_onnx_order(network: Any) -> None:
    model, _ = network()
    graph = graph_of(model)
    assert [(node.name, node.op) for node in graph.nodes] == [(node.name, node.op_type) for node in model.graph.node]
    assert [node.outputs[0] for node in graph.nodes] == [node.output[0] for node in model.graph.node]
    assert graph.inputs == [info.name for info in model.graph.input]
    assert graph.outputs == [info.name for info in model.graph.output]


def test_quantisation_lives_in_tensor_types() -> None:
    model, _ = qlinear_network()
    graph = graph_of(model)
    conv = node_of(graph, "conv")
    data, weight, bias = (graph.tensors[name] for name in conv.inputs)
    scales = np.linspace(0.002, 0.01, 8, dtype=np.float32)
    assert data.type == Quantized("int8", (float(np.float32(0.03)),), (3,))
    assert weight.type == Quantized("int8", tuple(map(float, scales)), (0,) * 8, 0)
    assert bias.type == Quantized("int32", tuple(map(float, np.float32(0.03) * scales)), (0,) * 8, 0)
    np.testing.assert_array_equal(bias.data, np.arange(8) * 50)
    assert graph.tensors[conv.outputs[0]].type == Quantized("int8", (float(np.float32(0.05)),), (-4,))
    assert conv.attrs == {
        "strides": (2, 2),
        "pads": (1, 1, 1, 1),
        "dilations": (1, 1),
        "group": 1,
        "kernel_shape": (3, 3),
    }


def test_layout_nodes_keep_the_quantisation_of_their_input() -> None:
    graph = graph_of(qlinear_network()[0])
    for name in ("transpose", "flat"):
        node = node_of(graph, name)
        assert graph.tensors[node.outputs[0]].type == graph.tensors[node.inputs[0]].type != Integer("int8")


def test_weights_are_laid_out_as_in_onnx() -> None:
    graph = graph_of(qlinear_network()[0])
    product, gemm = node_of(graph, "product"), node_of(graph, "gemm")
    np.testing.assert_array_equal(graph.tensors[product.inputs[1]].data, codes(8, 6))
    assert gemm.attrs == {"transB": 1, "alpha": 1.0}
    np.testing.assert_array_equal(graph.tensors[gemm.inputs[1]].data, codes(5, 24, seed=2))


def test_alpha_of_gemm() -> None:
    grow = Builder()
    x = grow.node("QuantizeLinear", ["x", *q(0.1)])
    inputs = [x, *q(0.1), codes(6, 4), *q(0.02), np.arange(4, dtype=np.int32), *q(0.3)]
    graph = graph_of(grow.model({"x": normal(3, 6)}, [grow.node("QGemm", inputs, "gemm", "com.microsoft", alpha=0.25)]))
    assert node_of(graph, "gemm").attrs["alpha"] == 0.25


FLOAT_NODES: dict[str, tuple[list[Any], dict[str, Any], dict[str, Any]]] = {
    "Softmax": ([], {"axis": -1}, {"axis": 2}),
    "ReduceMean": ([], {"axes": [-1], "keepdims": 1}, {"axes": (2,), "keepdims": 1}),
    "LayerNormalization": ([normal(6), normal(6)], {"epsilon": 0.5}, {"axis": 2, "epsilon": 0.5}),
    "HardSigmoid": ([], {"alpha": 0.25, "beta": 0.5}, {"alpha": 0.25, "beta": 0.5}),
    "Clip": ([np.float32(-1), np.float32(6)], {}, {"min": -1.0, "max": 6.0}),
    "LeakyRelu": ([], {"alpha": 0.25}, {"alpha": 0.25}),
    "Transpose": ([], {"perm": [0, 2, 1]}, {"perm": (0, 2, 1)}),
    "Concat": ([normal(2, 5, 6)], {"axis": -1}, {"axis": 2}),
    "Gather": ([np.array([1, 0])], {"axis": 1}, {"axis": 1, "indices": (1, 0)}),
    "Slice": (
        [np.array([1]), np.array([2**40]), np.array([2]), np.array([2])],
        {},
        {"starts": (1,), "ends": (6,), "axes": (2,), "steps": (2,)},
    ),
    "Pow": ([np.float32(2)], {}, {}),
    "Sqrt": ([], {}, {}),
    "Relu": ([], {}, {}),
    "Identity": ([], {}, {}),
    "MatMul": ([normal(6, 3)], {}, {}),
}


@pytest.mark.parametrize("op", FLOAT_NODES)
def test_float_node(op: str) -> None:
    more, attributes, expected = FLOAT_NODES[op]
    grow = Builder()
    graph = graph_of(grow.model({"x": normal(2, 5, 6)}, [grow.node(op, ["x", *more], "node", **attributes)]))
    (node,) = graph.nodes
    assert (node.name, node.op, node.attrs) == ("node", op, expected)
    assert isinstance(graph.tensors[node.outputs[0]].type, Float)
    assert node.inputs[0] == "x"


@pytest.mark.parametrize("op", ["Flatten", "Squeeze", "Unsqueeze"])
def test_flatten_squeeze_and_unsqueeze_are_reshapes(op: str) -> None:
    axes = {"Squeeze": [np.array([0])], "Unsqueeze": [np.array([1])]}.get(op, [])
    grow = Builder()
    model = grow.model({"x": normal(1, 5, 6)}, [grow.node(op, ["x", *axes], "node")])
    (node,) = graph_of(model).nodes
    assert (node.name, node.op) == ("node", "Reshape")


def test_one_constant_read_with_two_scales_is_two_tensors() -> None:
    grow = Builder()
    x, shared = grow.node("QuantizeLinear", ["x", *q(0.1)]), grow.constant(codes(6), "shared")
    x = grow.node("QLinearAdd", [x, *q(0.1), shared, *q(0.2), *q(0.1)], "a", "com.microsoft")
    x = grow.node("QLinearAdd", [x, *q(0.1), shared, *q(0.3), *q(0.1)], "b", "com.microsoft")
    graph = graph_of(grow.model({"x": normal(6)}, [x]))
    scales = [graph.tensors[node_of(graph, name).inputs[1]].type.scale[0] for name in "ab"]
    assert scales == [float(np.float32(0.2)), float(np.float32(0.3))]


def test_a_tensor_read_with_another_scale_than_it_was_written_is_refused() -> None:
    grow = Builder()
    x = grow.node("QuantizeLinear", ["x", *q(0.1)], "quantize")
    x = grow.node("DequantizeLinear", [x, *q(0.2)])
    with pytest.raises(UserError, match=r"ONNX node 'quantize' \(QuantizeLinear\): .*must read scale \(0.1.*found"):
        graph_of(grow.model({"x": normal(6)}, [x]))


def test_an_unsupported_call_is_refused_with_node_and_remedy() -> None:
    grow = Builder()
    with pytest.raises(UnsupportedNode, match=r"ONNX node '/a/cast' \(cast\): .*host"):
        graph_of(grow.model({"x": normal(6)}, [grow.node("Cast", ["x"], "/a/cast", to=6)]))


# --- modules of relay.frontend.from_onnx


DOORS = {
    "ours": lambda model: import_onnx(model)[0],
    "from_onnx": lambda model: prepare(relay.frontend.from_onnx(model)[0]),
    "from_onnx with parameters": lambda model: prepare(*relay.frontend.from_onnx(model, freeze_params=False)),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("per_channel", [False, True])
def test_qdq_becomes_the_quantised_operators(tmp_path: Path, door: str, per_channel: bool) -> None:
    model = quantised(tmp_path, QuantFormat.QDQ, per_channel)
    graph = to_graph(DOORS[door](model), "model")
    linear = [node.op for node in graph.nodes if node.op.startswith("QLinear")]
    assert sorted(linear) == ["QLinearAdd", "QLinearConv", "QLinearConv", "QLinearMatMul"]
    (relu,) = (node for node in graph.nodes if node.op == "Relu")  # a unary function becomes a table, later
    floats = {tensor.name for tensor in graph.tensors.values() if isinstance(tensor.type, Float)}
    assert floats == {*graph.inputs, *graph.outputs, *relu.inputs, *relu.outputs}
    weight = graph.tensors[next(node for node in graph.nodes if node.op == "QLinearConv").inputs[1]]
    assert (len(weight.type.scale), weight.type.axis) == ((8, 0) if per_channel else (1, None))


def test_folded_nodes_are_listed(tmp_path: Path) -> None:
    model = quantised(tmp_path, QuantFormat.QDQ, False)
    graph = graph_of(model)
    product = next(node for node in graph.nodes if node.op == "QLinearMatMul")
    assert [op for _, op, _ in product.covers] == ["DequantizeLinear", "DequantizeLinear", "MatMul", "QuantizeLinear"]
    assert product.covers[2][0] == "product"
    assert product.covers[-1][2] == (product.outputs[0],)
    seen = {node.name for node in graph.nodes} | {name for node in graph.nodes for name, _, _ in node.covers}
    assert seen == {node.name for node in model.graph.node}


@pytest.mark.parametrize("door", DOORS)
def test_qoperator_gives_the_same_graph_through_every_door(tmp_path: Path, door: str) -> None:
    model = quantised(tmp_path, QuantFormat.QOperator, True)
    graph = to_graph(DOORS[door](model), "model")
    ours = {node.name: node for node in graph_of(model).nodes}
    assert {node.name: node.op for node in graph.nodes} == {name: node.op for name, node in ours.items()}
    for node in graph.nodes:
        assert node.attrs == ours[node.name].attrs


# --- hand-written QNN


def scalar(value: float, dtype: str = "float32") -> Any:
    return relay.const(value, dtype)


def requantised(acc: Any, source: float, target: float) -> Any:
    return relay.qnn.op.requantize(acc, scalar(source), scalar(0, "int32"), scalar(target), scalar(0, "int32"))


def operands(a: Any, b: Any) -> tuple[Any, ...]:
    return (a, b, scalar(0, "int32"), scalar(0, "int32"), scalar(0.5), scalar(0.25))


def test_hand_written_dense_with_bias_is_a_gemm() -> None:
    x = relay.var("x", shape=(3, 8), dtype="int8")
    acc = relay.qnn.op.dense(*operands(x, relay.const(codes(4, 8))), units=4)
    acc = relay.nn.bias_add(acc, relay.const(np.arange(4, dtype=np.int32)))
    graph = to_graph(relay.Function([x], requantised(acc, 0.125, 0.75)), "hand")
    (node,) = graph.nodes
    assert (node.name, node.op, node.attrs) == ("op_0", "QGemm", {"transB": 1, "alpha": 1.0})
    assert graph.tensors["x"].type == Quantized("int8", (0.5,), (0,))
    assert graph.tensors[node.outputs[0]].type == Quantized("int8", (0.75,), (0,))


def test_hand_written_batch_product_of_transposed_operand_gets_an_explicit_transpose() -> None:
    a, b = (relay.var(name, shape=(2, 4, 8), dtype="int8") for name in "ab")
    body = requantised(relay.qnn.op.batch_matmul(*operands(a, b)), 0.125, 0.75)
    graph = to_graph(relay.Function([a, b], body), "hand")
    assert [node.op for node in graph.nodes] == ["Transpose", "QLinearMatMul"]
    assert graph.nodes[0].attrs == {"perm": (0, 2, 1)}
    assert graph.tensors[graph.nodes[0].outputs[0]].shape == (2, 8, 4)
    assert graph.tensors["b"].type == graph.tensors[graph.nodes[0].outputs[0]].type == Quantized("int8", (0.25,), (0,))


def test_hand_written_convolution_of_a_float_pipeline() -> None:
    x = relay.var("x", shape=(1, 3, 6, 6))
    q8 = relay.qnn.op.quantize(x, scalar(0.5), scalar(0, "int32"))
    acc = relay.qnn.op.conv2d(*operands(q8, relay.const(codes(4, 3, 3, 3))), kernel_size=(3, 3), channels=4, padding=1)
    body = relay.qnn.op.dequantize(requantised(acc, 0.125, 0.75), scalar(0.75), scalar(0, "int32"))
    graph = to_graph(relay.Function([x], body), "hand")
    assert [node.op for node in graph.nodes] == ["QuantizeLinear", "QLinearConv", "DequantizeLinear"]
    assert graph.nodes[1].attrs["pads"] == (1, 1, 1, 1)


def test_a_requantisation_of_another_scale_is_refused() -> None:
    x = relay.var("x", shape=(3, 8), dtype="int8")
    acc = relay.qnn.op.dense(*operands(x, relay.const(codes(4, 8))), units=4)
    with pytest.raises(UnsupportedNode, match=r"must be the product's scale \[0.125\], found \[0.25\]"):
        to_graph(relay.Function([x], requantised(acc, 0.25, 0.75)), "hand")
