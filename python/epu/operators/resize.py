"""Resize: nearest by the positions that the coordinates give, linear as a weighted sum of neighbours, rounded once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil, floor, prod

import numpy as np

from epu.graph import Graph, Node
from epu.lanes import rshr, saturate
from epu.operators.row import (
    Array,
    Ints,
    Limit,
    Operator,
    Values,
    output_tensor,
    required,
    same_format,
    same_intervals,
    value,
)

WEIGHT_BITS = 30  # the weights of a position add up to 2**30

COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
ROUNDINGS = {
    "round_prefer_floor": lambda x: ceil(x - Fraction(1, 2)),
    "round_prefer_ceil": lambda x: floor(x + Fraction(1, 2)),
    "floor": floor,
    "ceil": ceil,
}


@dataclass(frozen=True)
class Sampled:
    """One resized axis: two neighbours of each output position, and the weight of the second."""

    axis: int
    low: tuple[int, ...]
    high: tuple[int, ...]
    weight: tuple[Fraction, ...]


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
    """Nearest: the input position of each output position, by axis that changes; attribute ``positions`` says them itself."""
    if "positions" in node.attrs:
        return dict(node.attrs["positions"])
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
    return Sampled(axis, low, high, tuple(each - base for each, base in zip(inside, low)))


@dataclass(frozen=True)
class Neighbour:
    """One choice of neighbours: positions by axis, and its weights in 2**-WEIGHT_BITS, one per pair of output positions."""

    positions: dict[int, list[int]]
    weights: Ints


def neighbours(axes: list[Sampled], rank: int) -> list[Neighbour]:
    """Every choice along one or two axes; the last one's weights are what the others leave."""
    found: list[Neighbour] = []
    for choice in product((False, True), repeat=len(axes)):
        chosen = {each.axis: list(each.high if high else each.low) for each, high in zip(axes, choice)}
        left = 2**WEIGHT_BITS - sum(each.weights for each in found)
        weights = left if all(choice) else choice_weights(axes, choice, rank)
        found.append(Neighbour(chosen, np.asarray(weights, np.int64)))
    return found


def choice_weights(axes: list[Sampled], choice: tuple[bool, ...], rank: int) -> Ints:
    """Products of the axes' weights, half to even."""
    lists = [[w if high else 1 - w for w in each.weight] for each, high in zip(axes, choice)]
    rounded = cache(lambda *each: round(prod(each) * 2**WEIGHT_BITS))
    shape = [1] * rank
    for each in axes:
        shape[each.axis] = len(each.weight)
    return np.array([rounded(*each) for each in product(*lists)], np.int64).reshape(shape)


def resize_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    x = values[node.inputs[0]]
    if node.attrs.get("mode", "nearest") == "nearest":
        return [picked(x, positions(node, graph))]
    axes = samples(node, graph)
    if not axes:
        return [x]
    total = sum(picked(x, each.positions).astype(np.int64) * each.weights for each in neighbours(axes, x.ndim))
    return [saturate(rshr(np.asarray(total), WEIGHT_BITS), str(x.dtype))]


def picked(x: Array, found: dict[int, list[int]]) -> Array:
    for axis, places in found.items():
        x = np.take(x, np.array(places, np.int64), axis)
    return x


def blend_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    """Inputs: neighbours, then as many weights of 2**-shift."""
    count = len(node.inputs) // 2
    total = sum(value(node, values, k) * value(node, values, count + k) for k in range(count))
    return [saturate(rshr(np.asarray(total), node.attrs["shift"]), str(values[node.inputs[0]].dtype))]


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
    Operator("Blend", "elementwise", (), blend_reference),
)
