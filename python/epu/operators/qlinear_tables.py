"""Tables of 256 entries: QLinearSigmoid, QLinearLeakyRelu, and each input of QLinearConcat."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from epu.constants import clip_to, integer_range, logistic, nearest
from epu.graph import Graph, Node, Quantized
from epu.operators.row import (
    INT8_OUTPUT,
    ORT,
    PER_TENSOR,
    Array,
    Operator,
    Values,
    int8_inputs,
    output_tensor,
    quantized,
    required,
    value,
)

Function = Callable[[Fraction], Fraction]
Function32 = Callable[[Array], Array]


def codes(kind: Quantized) -> range:
    """All raw values of a type, lowest first: the order of every table."""
    low, high = integer_range(kind.dtype)
    return range(low, high + 1)


def exact_table(source: Quantized, target: Quantized, function: Function) -> Array:
    """``function`` of each code's real, rounded once, half to even."""
    step, unit = Fraction(source.scale[0]), Fraction(target.scale[0])
    reals = [function((code - source.zero_point[0]) * step) for code in codes(source)]
    rounded = [clip_to(target.dtype, nearest(real / unit) + target.zero_point[0]) for real in reals]
    return np.array(rounded, target.dtype)


def float32_table(source: Quantized, target: Quantized, function: Function32) -> Array:
    """The same in float32, rounded after each step as ONNX Runtime does."""
    centred = np.array(codes(source), np.float32) - np.float32(source.zero_point[0])
    reals = function(centred * np.float32(source.scale[0]))
    return float32_codes(reals, target)


def float32_codes(reals: Array, target: Quantized) -> Array:
    """QuantizeLinear of a float32 table."""
    rounded = np.rint(np.asarray(reals, np.float32) / np.float32(target.scale[0])) + np.float32(target.zero_point[0])
    low, high = integer_range(target.dtype)
    found: Array = np.clip(rounded, low, high).astype(target.dtype)
    return found


def look_up(table: Array, raw: Array, source: Quantized) -> Array:
    found: Array = table[raw - integer_range(source.dtype)[0]]
    return found


def concat_table(source: Quantized, target: Quantized, rounding: str) -> Array:
    """Requantisation of one input of QLinearConcat; the identity where nothing changes."""
    if rounding == ORT and (source.scale, source.zero_point) != (target.scale, target.zero_point):
        return float32_table(source, target, lambda x: x)
    return exact_table(source, target, lambda x: x)


def concat_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    target, pieces = quantized(output_tensor(node, graph)), []
    for i in range(len(node.inputs)):
        source = quantized(required(node, graph, i))
        pieces.append(look_up(concat_table(source, target, rounding), value(node, values, i), source))
    return [np.concatenate(pieces, node.attrs["axis"])]


def sigmoid_table(node: Node, graph: Graph, rounding: str) -> Array:
    source, target = quantized(required(node, graph, 0)), quantized(output_tensor(node, graph))
    return exact_table(source, target, logistic)


def leaky_relu_table(node: Node, graph: Graph, rounding: str) -> Array:
    source, target = quantized(required(node, graph, 0)), quantized(output_tensor(node, graph))
    alpha = np.float32(node.attrs.get("alpha", 0.01))
    if rounding == ORT:
        return float32_table(source, target, lambda x: np.where(x >= 0, x, x * alpha))
    return exact_table(source, target, lambda x: x if x >= 0 else x * Fraction(float(alpha)))


def table_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    source = quantized(required(node, graph, 0))
    return [look_up(TABLES[node.op](node, graph, rounding), value(node, values, 0), source)]


TABLES = {"QLinearSigmoid": sigmoid_table, "QLinearLeakyRelu": leaky_relu_table}
UNARY_LIMITS = (int8_inputs(0), INT8_OUTPUT, PER_TENSOR)
ROWS = (
    Operator("QLinearSigmoid", "table", UNARY_LIMITS, table_reference),
    Operator("QLinearLeakyRelu", "table", UNARY_LIMITS, table_reference),
    Operator("QLinearConcat", "moves", (INT8_OUTPUT, PER_TENSOR), concat_reference),
)
