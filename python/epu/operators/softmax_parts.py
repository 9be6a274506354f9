"""A softmax of long rows in five nodes: ReduceMax, SoftmaxExp, SoftmaxBits, SoftmaxFactor, SoftmaxShare. The same
bytes as Softmax."""

from __future__ import annotations

import numpy as np

from epu.elementary import exp_negative, normalise_sum
from epu.graph import Graph, Node
from epu.lanes import mulr, saturate
from epu.operators.row import (
    FLOAT_TENSORS,
    Array,
    Interval,
    Operator,
    Values,
    frac,
    output_tensor,
    required,
    spread,
    value,
)
from epu.operators.softmax import EXPONENT_LIMIT, softmax_intervals

EXPONENTIAL_FRAC = 30


def exp_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    below = saturate(value(node, values, 1) - value(node, values, 0), "int32").astype(np.int64)
    return [exp_negative(below, frac(required(node, graph, 0))).astype(np.int32)]


def factor_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    length, inverse = normalise_sum(value(node, values, 0).sum(axis=-1, keepdims=True))
    return [(length if node.op == "SoftmaxBits" else inverse).astype(np.int32)]


def share_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    exponentials, length, inverse = (value(node, values, index) for index in range(3))
    return [saturate(mulr(exponentials, inverse, 30 + length - frac(output_tensor(node, graph))), "int32")]


def exp_formats(node: Node, graph: Graph) -> dict[str, int]:
    return {node.outputs[0]: EXPONENTIAL_FRAC}


def factor_formats(node: Node, graph: Graph) -> dict[str, int]:
    """Plain integers."""
    return {node.outputs[0]: 0}


def factor_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return {node.outputs[0]: (0.0, 64.0 if node.op == "SoftmaxBits" else 2.0**31)}


ROWS = (
    Operator(
        name="SoftmaxExp",
        family="softmax",
        limits=(FLOAT_TENSORS, EXPONENT_LIMIT),
        reference=exp_reference,
        intervals=softmax_intervals,
        formats=exp_formats,
        input_size=spread,
    ),
    Operator("SoftmaxBits", "fold", (FLOAT_TENSORS,), factor_reference, factor_intervals, formats=factor_formats),
    Operator("SoftmaxFactor", "fold", (FLOAT_TENSORS,), factor_reference, factor_intervals, formats=factor_formats),
    Operator("SoftmaxShare", "elementwise", (FLOAT_TENSORS,), share_reference, softmax_intervals),
)
