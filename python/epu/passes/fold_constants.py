"""Compute what depends on constants alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Float, Graph, Node, Tensor
from epu.operators import OPERATORS
from epu.operators.row import EXACT, quantized, scale32, zero_point

Array = NDArray[Any]

MOVES = ("layout", "transpose", "moves")  # kernel families
ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
}


def fold_constants(graph: Graph) -> Graph:
    """``constant -> op -> y`` becomes the constant ``y``, for moves, DequantizeLinear and float32 arithmetic."""
    tensors, nodes = dict(graph.tensors), []
    folded = replace(graph, tensors=tensors)
    for node in graph.nodes:
        data = constant_result(node, folded)
        if data is None:
            nodes.append(node)
        else:
            tensors[node.outputs[0]] = constant_tensor(tensors[node.outputs[0]], data)
    return replace(folded, nodes=nodes)


def constant_tensor(tensor: Tensor, data: Array) -> Tensor:
    """A float constant's range is its own, not that of all codes."""
    if isinstance(tensor.type, Float):
        return replace(tensor, data=data, range=None, range_source="")
    return replace(tensor, data=data)


def constant_result(node: Node, graph: Graph) -> Array | None:
    """The value of a node of constants; None where an input is variable or the op is not folded."""
    inputs = [graph.tensors[name] for name in node.inputs if name]
    if not inputs or any(tensor.data is None for tensor in inputs):
        return None
    if node.op == "DequantizeLinear":
        return dequantized(inputs[0])
    if node.op in ARITHMETIC and all(isinstance(tensor.type, Float) for tensor in inputs):
        return ARITHMETIC[node.op](*(np.asarray(tensor.data, np.float32) for tensor in inputs))
    if node.op in OPERATORS and OPERATORS[node.op].family in MOVES and node.op != "QLinearConcat":
        values = {tensor.name: np.asarray(tensor.data) for tensor in inputs}
        return OPERATORS[node.op].reference(node, graph, values, EXACT)[0]
    return None


def dequantized(tensor: Tensor) -> Array:
    """float32 reals of a quantized constant, as ONNX Runtime computes them."""
    kind, raw = quantized(tensor), np.asarray(tensor.data, np.int64)
    scale = scale32(kind)
    if kind.axis is not None:
        shape = [1] * raw.ndim
        shape[kind.axis] = -1
        scale = scale.reshape(shape)
    return np.asarray((raw - zero_point(kind, raw.ndim)).astype(np.float32) * scale, np.float32)
