"""The ort tables of recognised regions against ONNX Runtime, over all 256 codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single_node import run_model
from small_graphs import ATTRIBUTES, INT8, graph

from epu.graph import Float, Graph, Quantized
from epu.passes import recognise_unary_tables
from epu.reference import run_reference

CODES = np.arange(-128, 128).astype(np.int8).reshape(16, 16)
CONSTANTS = {"half": 0.5, "six": 6.0, "third": 0.33333, "three": 3.0}
REGIONS = {
    "relu": ["Relu x -> y"],
    "clip": ["Clip x low high -> c", "Div c six -> y"],
    "hard_sigmoid": ["HardSigmoid x -> y"],
    "hard_swish": ["HardSigmoid x -> s", "Mul x s -> y"],
    "line": ["Mul third x -> a", "Sub a half -> y"],
    "silu": ["Sigmoid x -> s", "Mul x s -> y"],
    "erf gelu": ["Div x six -> a", "Erf a -> s", "Add s half -> c", "Mul x c -> y"],
    "tanh": ["Tanh x -> y"],
    "exp": ["Exp x -> s", "Mul s third -> y"],
    "softplus": ["Softplus x -> y"],
    "elu": ["Elu x -> y"],
    "leaky_relu": ["LeakyRelu x -> y"],
    "cube": ["Pow x three -> a", "Div a six -> y"],
    "root": ["Abs x -> a", "Sqrt a -> y"],
    "logarithm": ["Abs x -> a", "Add a half -> c", "Log c -> y"],
    "reciprocal": ["Abs x -> a", "Add a half -> c", "Reciprocal c -> y"],
    "extremes": ["Max x half -> a", "Min a six -> c", "Neg c -> y"],
}


def onnx_answer(lines: list[str], source: Quantized, target: Quantized) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    constants = {name: np.float32(real) for name, real in {**CONSTANTS, "low": 0.0, "high": 6.0}.items()}
    for name, kind in (("q", source), ("qy", target)):
        constants[f"s{name}"] = np.float32(kind.scale[0])
        constants[f"z{name}"] = np.array(kind.zero_point[0], kind.dtype)
    nodes = [helper.make_node("DequantizeLinear", ["q", "sq", "zq"], ["x"])]
    for line in lines:
        (op, *names), result = line.split(" -> ")[0].split(), line.split(" -> ")[1]
        attrs = ATTRIBUTES.get(op, {}) if op != "Clip" else {}
        nodes.append(helper.make_node(op, names, [result], **attrs))
    nodes.append(helper.make_node("QuantizeLinear", ["y", "sqy", "zqy"], ["qy"]))
    read = {name for node in nodes for name in node.input}
    initializers = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items() if n in read]
    inputs = [helper.make_tensor_value_info("q", TensorProto.INT8, CODES.shape)]
    output = helper.make_tensor_value_info("qy", TensorProto.INT8, None)
    return run_model(nodes, inputs, output, initializers, {"q": CODES})


def recognised(lines: list[str], source: Quantized, target: Quantized) -> Graph:
    bare = [line.replace(" low high", "") for line in lines]  # bounds of a Clip are attributes here
    region = ["DequantizeLinear q -> x", *bare, "QuantizeLinear y -> qy"]
    shapes: dict[str, Any] = dict.fromkeys(("x", "y", "a", "c", "s"), CODES.shape)
    scalars = {name: np.array([real], np.float32) for name, real in CONSTANTS.items()}
    found = graph(region, {"q": source}, ["qy"], qy=target, **shapes, **scalars)
    found.tensors["q"].shape = found.tensors["qy"].shape = CODES.shape
    return recognise_unary_tables(found)


@pytest.mark.parametrize("name", REGIONS)
@pytest.mark.parametrize("scale", [0.03125, 0.0471, 0.13])
def test_tables(name: str, scale: float) -> None:
    source = Quantized("int8", (float(np.float32(scale)),), (3,))
    target = Quantized("int8", (float(np.float32(scale * 0.71)),), (-4,))
    table = recognised(REGIONS[name], source, target)
    assert [node.op for node in table.nodes] == ["QuantizedUnary"]
    expected = onnx_answer(REGIONS[name], source, target)
    node = table.nodes[0]
    np.testing.assert_array_equal(node.attrs["table_ort"][CODES.astype(int) + 128], expected)
    distance = np.abs(node.attrs["table"].astype(int) - node.attrs["table_ort"])
    assert distance.max() <= 1
    assert distance.sum() <= 2
    values = {"q": CODES}
    row = run_reference(Graph("t", [without_inner(node)], table.tensors, ["q"], ["qy"]), values, "ort")["qy"]
    np.testing.assert_array_equal(row, expected)


def without_inner(node: Any) -> Any:
    """The node without its float tensors, which have no fraction bits here."""
    node.attrs["inner"] = {}
    return node


def test_a_float_input_of_the_graph_is_a_second_variable() -> None:
    """What the host makes may be multiplied with decoded codes: no table has two arguments."""
    lines = ["DequantizeLinear q -> d", "HardSigmoid d -> h", "Mul h x -> y", "QuantizeLinear y -> qy"]
    found = recognise_unary_tables(graph(lines, {"q": INT8, "x": Float()}, ["qy"]))
    assert [node.op for node in found.nodes] == ["DequantizeLinear", "HardSigmoid", "Mul", "QuantizeLinear"]
