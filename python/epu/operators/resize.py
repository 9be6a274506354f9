"""Resize: nearest by the positions that the coordinates give, linear with weights of 14 bits per axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import numpy as np

from epu.graph import Graph, Node
from epu.lanes import rshr, saturate
from epu.operators.row import (
    Array,
    Interval,
    Ints,
    Limit,
    Operator,
    Values,
    along,
    interval,
    output_tensor,
    required,
    same_format,
    value,
)

WEIGHT_BITS = 14  # of one axis; two axes leave 4 bits of an int64 for the sum

COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
ROUNDINGS = {
    "round_prefer_floor": lambda x: ceil(x - Fraction(1, 2)),
    "round_prefer_ceil": lambda x: floor(x + Fraction(1, 2)),
    "floor": floor,
    "ceil": ceil,
}


@dataclass(frozen=True)
class Sampled:
    """One resized axis: two neighbours of each output position, and the weight of the second in 2**-WEIGHT_BITS."""

    axis: int
    low: tuple[int, ...]
    high: tuple[int, ...]
    weight: tuple[int, ...]


def coordinate(mode: str, position: int, size: int, out: int) -> Fraction:
    """Where an output position lies on the input's axis."""
    scale = Fraction(size, out)
    if mode == "align_corners":
        return Fraction(position * (size - 1), out - 1) if out > 1 else Fraction(0)
    if mode == "asymmetric":
        return position * scale
    if mode == "pytorch_half_pixel" and out == 1:
        return Fraction(0)
    return (position + Fraction(1, 2)) * scale - Fraction(1, 2)


def coordinates(node: Node, graph: Graph) -> Iterator[tuple[int, int, list[Fraction]]]:
    """(axis, its input size, coordinates) of each axis that changes."""
    mode = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    shapes = zip(required(node, graph, 0).shape, output_tensor(node, graph).shape)
    for axis, (size, out) in enumerate(shapes):
        if size != out:
            yield axis, size, [coordinate(mode, position, size, out) for position in range(out)]


def positions(node: Node, graph: Graph) -> dict[int, list[int]]:
    """Nearest: the input position of each output position, by axis that changes."""
    rounded = ROUNDINGS[node.attrs.get("nearest_mode", "round_prefer_floor")]
    return {
        axis: [min(max(rounded(each), 0), size - 1) for each in found] for axis, size, found in coordinates(node, graph)
    }


def samples(node: Node, graph: Graph) -> list[Sampled]:
    """Linear: neighbours and weights by axis that changes."""
    return [sampled(axis, size, found) for axis, size, found in coordinates(node, graph)]


def sampled(axis: int, size: int, found: list[Fraction]) -> Sampled:
    inside = [min(max(each, Fraction(0)), Fraction(size - 1)) for each in found]
    low = tuple(min(floor(each), max(size - 2, 0)) for each in inside)
    high = tuple(min(each + 1, size - 1) for each in low)
    return Sampled(axis, low, high, tuple(round((each - base) * 2**WEIGHT_BITS) for each, base in zip(inside, low)))


def resize_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    x = values[node.inputs[0]]
    if node.attrs.get("mode", "nearest") == "nearest":
        for axis, found in positions(node, graph).items():
            x = np.take(x, np.array(found, np.int64), axis)
        return [x]
    total, axes = value(node, values, 0), samples(node, graph)
    for each in axes:
        total = weighted(total, each)
    return [saturate(rshr(total, WEIGHT_BITS * len(axes)), str(x.dtype))]


def weighted(x: Ints, each: Sampled) -> Ints:
    """The weighted sum of two neighbours along one axis."""
    second = along(np.array(each.weight, np.int64), each.axis, x.ndim)
    low, high = (np.take(x, np.array(found, np.int64), each.axis) for found in (each.low, each.high))
    found: Ints = low * (2**WEIGHT_BITS - second) + high * second
    return found


def same_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return {node.outputs[0]: interval(required(node, graph, 0))}


def check_mode(node: Node, graph: Graph) -> str | None:
    found = node.attrs.get("mode", "nearest")
    return None if found in ("nearest", "linear") else str(found)


def check_coordinates(node: Node, graph: Graph) -> str | None:
    found = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    return None if found in COORDINATES else str(found)


def check_linear_axes(node: Node, graph: Graph) -> str | None:
    count = sum(a != b for a, b in zip(required(node, graph, 0).shape, output_tensor(node, graph).shape))
    return f"{count} axes" if node.attrs.get("mode") == "linear" and count > 2 else None


ROWS = (
    Operator(
        name="Resize",
        family="moves",
        limits=(
            Limit("the mode is nearest or linear", check_mode),
            Limit("the coordinates are half_pixel, asymmetric, align_corners or pytorch_half_pixel", check_coordinates),
            Limit("a linear resize changes at most two axes", check_linear_axes),
        ),
        reference=resize_reference,
        intervals=same_intervals,
        formats=same_format,
    ),
)
