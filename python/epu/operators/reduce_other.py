"""ReduceSum, ReduceMax, ReduceMin, GlobalMaxPool (which is a ReduceMax)."""

from __future__ import annotations

import numpy as np

from epu.graph import Graph, Node
from epu.lanes import rshr, saturate
from epu.operators.reduce_mean import LARGEST_COUNT, reduced_axes, reduced_count
from epu.operators.row import (
    FLOAT_TENSORS,
    Array,
    Interval,
    Limit,
    Operator,
    Values,
    frac,
    interval,
    output_tensor,
    required,
    same_format,
    value,
)


def reduce_sum_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    output = output_tensor(node, graph)
    total = value(node, values, 0).sum(axis=reduced_axes(node, graph))
    return [saturate(rshr(total, frac(required(node, graph, 0)) - frac(output)), "int32").reshape(output.shape)]


def extreme_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    fold = np.max if node.op == "ReduceMax" else np.min
    found = fold(values[node.inputs[0]], axis=reduced_axes(node, graph))
    return [np.reshape(found, output_tensor(node, graph).shape)]


def sum_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    low, high = interval(required(node, graph, 0))
    count = reduced_count(node, graph)
    return {node.outputs[0]: (low * count, high * count)}


def same_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return {node.outputs[0]: interval(required(node, graph, 0))}


def check_count(node: Node, graph: Graph) -> str | None:
    found = reduced_count(node, graph)
    return None if 0 < found < LARGEST_COUNT else str(found)


COUNT = Limit("1 to 2**31 - 1 elements are reduced", check_count)
ROWS = (
    Operator("ReduceSum", "reduce", (FLOAT_TENSORS, COUNT), reduce_sum_reference, sum_intervals),
    Operator("ReduceMax", "reduce", (COUNT,), extreme_reference, same_intervals, formats=same_format),
    Operator("ReduceMin", "reduce", (COUNT,), extreme_reference, same_intervals, formats=same_format),
)
