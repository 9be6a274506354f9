"""ReduceMean, and the mean of N integers that pooling and layer normalisation share."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from epu.constants import ceil_log2, inverse, is_power_of_two
from epu.graph import Graph, Node
from epu.lanes import mulr, rshr, saturate
from epu.operators.row import (
    FLOAT_TENSORS,
    Array,
    Interval,
    Ints,
    Limit,
    Operator,
    Values,
    frac,
    interval,
    output_tensor,
    required,
    value,
)

LARGEST_COUNT = 1 << 31


@dataclass(frozen=True)
class MeanConstants:
    """``first`` shifts the int64 sum; where N is no power of two, ``factor`` and ``shift`` finish (else factor 0)."""

    first: int
    factor: int
    shift: int


def mean_constants(count: int, input_frac: int, output_frac: int) -> MeanConstants:
    p = ceil_log2(count)
    if is_power_of_two(count):
        return MeanConstants(p + input_frac - output_frac, 0, 0)
    factor, k = inverse(count)
    return MeanConstants(p, factor, k - p + input_frac - output_frac)


def mean_of_sum(total: Ints, constants: MeanConstants) -> Array:
    first = saturate(rshr(total, constants.first), "int32")
    if not constants.factor:
        return first
    return saturate(mulr(first.astype("int64"), constants.factor, constants.shift), "int32")


def mean(raw: Ints, axes: tuple[int, ...], constants: MeanConstants) -> Array:
    """Mean over the axes, kept as 1."""
    return mean_of_sum(raw.sum(axis=axes, keepdims=True), constants)


def reduced_axes(node: Node, graph: Graph) -> tuple[int, ...]:
    rank = len(required(node, graph, 0).shape)
    axes = node.attrs.get("axes") or range(rank)
    return tuple(sorted(axis % rank for axis in axes))


def reduced_count(node: Node, graph: Graph) -> int:
    shape = required(node, graph, 0).shape
    return prod(shape[axis] for axis in reduced_axes(node, graph))


def reduce_mean_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    output = output_tensor(node, graph)
    constants = mean_constants(reduced_count(node, graph), frac(required(node, graph, 0)), frac(output))
    return [mean(value(node, values, 0), reduced_axes(node, graph), constants).reshape(output.shape)]


def mean_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return {node.outputs[0]: interval(required(node, graph, 0))}


def check_count(node: Node, graph: Graph) -> str | None:
    found = reduced_count(node, graph)
    return None if 0 < found < LARGEST_COUNT else str(found)


ROWS = (
    Operator(
        name="ReduceMean",
        family="reduce",
        limits=(FLOAT_TENSORS, Limit("1 to 2**31 - 1 elements are averaged", check_count)),
        reference=reduce_mean_reference,
        intervals=mean_intervals,
    ),
)
