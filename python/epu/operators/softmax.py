"""Softmax on fixed point, and SoftmaxInt8: DequantizeLinear -> Softmax -> QuantizeLinear with one table."""

from __future__ import annotations

import numpy as np

from epu.constants import SHIFT_LIMIT, exp_table
from epu.elementary import exp_negative, normalise_sum
from epu.graph import Graph, Node, Quantized, Tensor
from epu.lanes import mulr, rshr, saturate
from epu.operators.quantize import dequantize_multiplier, quantize_multiplier, round_product
from epu.operators.row import (
    FLOAT_TENSORS,
    PER_TENSOR,
    Array,
    Interval,
    Ints,
    Limit,
    Operator,
    OwnBound,
    Values,
    frac,
    int8_inputs,
    output_tensor,
    quantized,
    quantized_interval,
    required,
    spread,
    value,
)

LONGEST_ROW = 1 << 20


def probabilities(exponentials: Ints, fraction_bits: int) -> Array:
    """The softmax tail: Q30 exponentials, row maximum 2**30, to int32 shares of their row's sum."""
    length, inverse_sum = normalise_sum(exponentials.sum(axis=-1, keepdims=True))
    return saturate(mulr(exponentials, inverse_sum, 30 + length - fraction_bits), "int32")


def softmax_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    raw = value(node, values, 0)
    below = saturate(raw.max(axis=-1, keepdims=True) - raw, "int32").astype(np.int64)
    exponentials = exp_negative(below, frac(required(node, graph, 0)))
    return [probabilities(exponentials, frac(output_tensor(node, graph)))]


def probability_tensor(node: Node, graph: Graph) -> Tensor:
    return graph.tensors[node.attrs["probabilities"]]


def int8_tensors(node: Node, graph: Graph, values: Values, rounding: str) -> dict[str, Array]:
    """Every tensor of a SoftmaxInt8: the covered float ones and the outputs, by name."""
    source, shares = required(node, graph, 0), probability_tensor(node, graph)
    raw = value(node, values, 0)
    table = exp_table(quantized(source).scale[0], 30).astype(np.int64)
    found = {shares.name: probabilities(table[raw.max(axis=-1, keepdims=True) - raw], frac(shares))}
    if node.attrs["dequantized"]:
        found[node.attrs["dequantized"]] = dequantize(source, graph.tensors[node.attrs["dequantized"]], raw, rounding)
    for name in node.outputs:
        if name != shares.name:
            found[name] = quantize(graph.tensors[name], shares, found[shares.name], rounding)
    return found


def dequantize(source: Tensor, target: Tensor, raw: Ints, rounding: str) -> Array:
    kind = quantized(source)
    factor, shift = dequantize_multiplier(kind.scale[0], frac(target))
    product = round_product(raw - kind.zero_point[0], np.int64(factor), rounding)  # type: ignore[arg-type]
    return saturate(rshr(product, shift), "int32")


def quantize(target: Tensor, source: Tensor, raw: Array, rounding: str) -> Array:
    kind = quantized(target)
    factor, shift = quantize_multiplier(kind.scale[0], frac(source))
    product = round_product(raw.astype(np.int64), np.int64(factor), rounding)  # type: ignore[arg-type]
    return saturate(rshr(product, shift) + kind.zero_point[0], kind.dtype)


def int8_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    found = int8_tensors(node, graph, values, rounding)
    return [found[name] for name in node.outputs]


def softmax_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return {node.outputs[0]: (0.0, 1.0)}


def int8_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    found: dict[str, Interval] = {node.attrs["probabilities"]: (0.0, 1.0)}
    if node.attrs["dequantized"]:
        found[node.attrs["dequantized"]] = quantized_interval(quantized(required(node, graph, 0)))
    return found


def check_last_axis(node: Node, graph: Graph) -> str | None:
    rank = len(required(node, graph, 0).shape)
    axis = node.attrs.get("axis", -1)
    return None if axis % rank == rank - 1 else f"axis {axis} of {rank} dimensions"


def check_row_length(node: Node, graph: Graph) -> str | None:
    found = required(node, graph, 0).shape[-1]
    return None if 0 < found <= LONGEST_ROW else str(found)


def check_fraction_bits(node: Node, graph: Graph) -> str | None:
    kind = required(node, graph, 0).type
    found = getattr(kind, "frac", 0)
    return None if isinstance(kind, Quantized) or 0 <= found + 4 < SHIFT_LIMIT else str(found)


EXPONENT_LIMIT = Limit("the input of an exponential has -4 to 58 fraction bits", check_fraction_bits)
ROW_LIMITS = (
    Limit("softmax runs along the last axis", check_last_axis),
    Limit("a row has 1 to 2**20 elements", check_row_length),
)
ROWS = (
    Operator(
        name="Softmax",
        family="softmax",
        limits=(FLOAT_TENSORS, *ROW_LIMITS, EXPONENT_LIMIT),
        reference=softmax_reference,
        intervals=softmax_intervals,
        input_size=spread,
        own_bound=OwnBound((0.0, 1.0), cost=2),
    ),
    Operator(
        name="SoftmaxInt8",
        family="softmax",
        limits=(int8_inputs(0), PER_TENSOR, *ROW_LIMITS),
        reference=int8_reference,
        intervals=int8_intervals,
        inner=int8_tensors,
    ),
)
