"""Element functions on the 256 codes of an int8 tensor: exact rationals, and float32 as ONNX Runtime rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.constants import clip_to, logistic, nearest
from epu.graph import Graph, Node, Quantized, TensorType
from epu.operators import qlinear_tables
from epu.operators.activation import bounds, slope
from epu.operators.row import constant_reals

Array = NDArray[Any]
Reals = list[Fraction]
Context = tuple[Node, Graph]


def exact_clip(x: Fraction, context: Context) -> Fraction:
    low, high = bounds(*context)
    x = x if low == -np.inf else max(x, Fraction(low))
    return x if high == np.inf else min(x, Fraction(high))


def float32_clip(x: Array, context: Context) -> Array:
    low, high = bounds(*context)
    return np.minimum(np.maximum(x, np.float32(low)), np.float32(high))


def exact_hard_sigmoid(x: Fraction, context: Context) -> Fraction:
    alpha, beta = (Fraction(float(np.float32(each))) for each in slope(context[0]))
    return min(max(alpha * x + beta, Fraction(0)), Fraction(1))


def float32_hard_sigmoid(x: Array, context: Context) -> Array:
    alpha, beta = (np.float32(each) for each in slope(context[0]))
    return np.minimum(np.maximum(alpha * x + beta, np.float32(0)), np.float32(1))


def float32_logistic(x: Array) -> Array:
    return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)


# op -> function of its variable and constant operands in order, and of (node, graph)
EXACT_FUNCTIONS: dict[str, Callable[..., Fraction]] = {
    "Relu": lambda x, context: max(x, Fraction(0)),
    "Clip": exact_clip,
    "HardSigmoid": exact_hard_sigmoid,
    "Sigmoid": lambda x, context: logistic(x),
    "Add": lambda a, b, context: a + b,
    "Sub": lambda a, b, context: a - b,
    "Mul": lambda a, b, context: a * b,
    "Div": lambda a, b, context: a / b,
}
FLOAT32_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "Relu": lambda x, context: np.maximum(x, np.float32(0)),
    "Clip": float32_clip,
    "HardSigmoid": float32_hard_sigmoid,
    "Sigmoid": lambda x, context: float32_logistic(x),
    "Add": lambda a, b, context: a + b,
    "Sub": lambda a, b, context: a - b,
    "Mul": lambda a, b, context: a * b,
    "Div": lambda a, b, context: a / b,
}


def operand_constants(graph: Graph, node: Node) -> dict[str, Fraction] | None:
    """The scalar constants among a node's operands; None where one is no scalar, or where it divides by 0 or a variable."""
    found: dict[str, Fraction] = {}
    for name in operands(node):
        tensor = graph.tensors[name]
        if tensor.data is not None:
            if tensor.data.size != 1 or not np.isfinite(tensor.data).all():
                return None
            found[name] = constant_reals(tensor)[0]
    if node.op == "Div" and not found.get(node.inputs[1]):
        return None
    return found


def operands(node: Node) -> list[str]:
    """The inputs that the function takes: bounds of a Clip are read apart."""
    return node.inputs[:1] if node.op == "Clip" else node.inputs


def exact_reals(graph: Graph, region: Sequence[Node]) -> dict[str, Reals]:
    """The 256 exact reals of every tensor that a region (DequantizeLinear first) makes."""
    kind = start_type(graph, region)
    step = Fraction(kind.scale[0])
    found = {region[0].outputs[0]: [(code - kind.zero_point[0]) * step for code in qlinear_tables.codes(kind)]}
    for node in region[1:]:
        constants = operand_constants(graph, node) or {}
        columns = [[constants[n]] * 256 if n in constants else found[n] for n in operands(node)]
        function = EXACT_FUNCTIONS[node.op]
        found[node.outputs[0]] = [function(*each, (node, graph)) for each in zip(*columns)]
    return found


def float32_reals(graph: Graph, region: Sequence[Node]) -> dict[str, Array]:
    """The same in float32, rounded after each node."""
    kind = start_type(graph, region)
    centred = np.array(qlinear_tables.codes(kind), np.float32) - np.float32(kind.zero_point[0])
    found = {region[0].outputs[0]: centred * np.float32(kind.scale[0])}
    for node in region[1:]:
        constants = operand_constants(graph, node) or {}
        columns = [np.float32(float(constants[n])) if n in constants else found[n] for n in operands(node)]
        found[node.outputs[0]] = FLOAT32_FUNCTIONS[node.op](*columns, (node, graph))
    return found


def start_type(graph: Graph, region: Sequence[Node]) -> Quantized:
    kind = graph.tensors[region[0].inputs[0]].type
    assert isinstance(kind, Quantized)
    return kind


def exact_codes(reals: Reals, target: TensorType) -> Array:
    """Codes of exact reals, one rounding, half to even."""
    assert isinstance(target, Quantized)
    unit = Fraction(target.scale[0])
    return np.array(
        [clip_to(target.dtype, nearest(real / unit) + target.zero_point[0]) for real in reals], target.dtype
    )


def float32_codes(reals: Array, target: TensorType) -> Array:
    assert isinstance(target, Quantized)
    return qlinear_tables.float32_codes(reals, target)
