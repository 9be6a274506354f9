"""ReduceSum and ReduceL2 on fixed point, ReduceMax and ReduceMin of codes too."""

from __future__ import annotations

from math import sqrt

import numpy as np

from epu.elementary import normal_sqrt
from epu.graph import Graph, Integer, Node
from epu.lanes import mulr, rshr, saturate
from epu.operators.layer_norm import square_shift
from epu.operators.reduce_mean import reduced_axes, reduced_count
from epu.operators.row import (
    CODES,
    FIXED,
    FLOAT_TENSORS,
    Array,
    Interval,
    Ints,
    Limit,
    Operator,
    Values,
    found_type,
    frac,
    interval,
    magnitude,
    output_tensor,
    required,
    same_format,
    same_intervals,
    value,
)

LARGEST_COUNT = 1 << 20


def extreme_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    fold = np.max if node.op == "ReduceMax" else np.min
    raw = np.asarray(values[node.inputs[0]])
    return [np.asarray(fold(raw, axis=reduced_axes(node, graph))).reshape(output_tensor(node, graph).shape)]


def total(raw: Ints, node: Node, graph: Graph) -> Ints:
    """int64 sums, in the output's shape."""
    return np.asarray(raw.sum(axis=reduced_axes(node, graph))).reshape(output_tensor(node, graph).shape)


def sum_shift(node: Node, graph: Graph) -> int:
    return frac(required(node, graph, 0)) - frac(output_tensor(node, graph))


def sum_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    return [saturate(rshr(total(value(node, values, 0), node, graph), sum_shift(node, graph)), "int32")]


def norm_shifts(node: Node, graph: Graph) -> tuple[int, int]:
    """Of each square, and of the root before its k is taken off."""
    sigma = square_shift(reduced_count(node, graph))
    half = frac(required(node, graph, 0)) - sigma // 2
    return sigma, 30 + half - frac(output_tensor(node, graph))


def norm_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    sigma, shift = norm_shifts(node, graph)
    raw = value(node, values, 0)
    k, v, root = normal_sqrt(total(mulr(raw, raw, sigma), node, graph))
    return [saturate(rshr(mulr(root, v, 32), shift - k), "int32")]


def sum_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    low, high = interval(required(node, graph, 0))
    count = reduced_count(node, graph)
    return {node.outputs[0]: (low * count, high * count)}


def norm_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return {node.outputs[0]: (0.0, magnitude(interval(required(node, graph, 0))) * sqrt(reduced_count(node, graph)))}


def check_count(node: Node, graph: Graph) -> str | None:
    found = reduced_count(node, graph)
    return None if 0 < found <= LARGEST_COUNT else str(found)


def check_no_integers(node: Node, graph: Graph) -> str | None:
    tensor = required(node, graph, 0)
    return found_type(tensor) if isinstance(tensor.type, Integer) else None


ORDERED = Limit("the input is float or quantized", check_no_integers, (*CODES, *FIXED))
COUNT = Limit("1 to 2**20 elements are folded", check_count)
LIMITS = (FLOAT_TENSORS, COUNT)
ROWS = (
    Operator("ReduceMax", "fold", (ORDERED, COUNT), extreme_reference, same_intervals, formats=same_format),
    Operator("ReduceMin", "fold", (ORDERED, COUNT), extreme_reference, same_intervals, formats=same_format),
    Operator("ReduceSum", "fold", LIMITS, sum_reference, sum_intervals),
    Operator("ReduceL2", "fold", LIMITS, norm_reference, norm_intervals),
)
