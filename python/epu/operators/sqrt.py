"""Sqrt on fixed point, through the inverse square root."""

from __future__ import annotations

import numpy as np

from epu.elementary import normal_sqrt
from epu.graph import Graph, Node
from epu.lanes import mulr, rshr, saturate
from epu.operators.row import (
    FLOAT_TENSORS,
    Array,
    Interval,
    Ints,
    Operator,
    Values,
    frac,
    interval,
    output_tensor,
    required,
    value,
)


def sqrt_raw(raw: Ints, bits_in: int, bits_out: int) -> Array:
    """Square root of ``raw * 2**-bits_in`` in Q``bits_out``; negative values count as 0."""
    odd = bits_in % 2
    k, v, root = normal_sqrt(np.maximum(raw, 0) << odd)
    half = (bits_in + odd) // 2
    return saturate(rshr(mulr(root, v, 32), 30 - k + half - bits_out), "int32")


def sqrt_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    return [sqrt_raw(value(node, values, 0), frac(required(node, graph, 0)), frac(output_tensor(node, graph)))]


def sqrt_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    low, high = interval(required(node, graph, 0))
    return {node.outputs[0]: (max(low, 0.0) ** 0.5, max(high, 0.0) ** 0.5)}


ROWS = (Operator("Sqrt", "elementwise", (FLOAT_TENSORS,), sqrt_reference, sqrt_intervals),)
