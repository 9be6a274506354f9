"""Moves by constant positions: Gather, Expand, Tile, Pad, DepthToSpace, SpaceToDepth."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from epu.constants import clip_to, fixed_constant, integer_range
from epu.graph import Fixed, Graph, Integer, Node, Quantized
from epu.operators.row import (
    Array,
    Interval,
    Limit,
    Operator,
    Reference,
    Values,
    interval,
    ints_attribute,
    output_tensor,
    required,
    same_format,
    same_intervals,
)

PAD_MODES = ("constant", "edge", "reflect")


def indices(node: Node) -> Sequence[int]:
    """The positions of Gather, flat; the output's shape says how they are arranged."""
    return [int(each) for each in node.attrs["indices"]]


def gather_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    picked = np.take(values[node.inputs[0]], np.array(indices(node), np.int64), node.attrs["axis"])
    return [picked.reshape(output_tensor(node, graph).shape)]


def expand_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    return [np.broadcast_to(values[node.inputs[0]], output_tensor(node, graph).shape)]


def tile_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    return [np.tile(values[node.inputs[0]], ints_attribute(node, "repeats", ()))]


def pad_edges(node: Node, graph: Graph) -> list[tuple[int, int]]:
    """Positions before and after each axis; negative ones are cut off."""
    rank = len(required(node, graph, 0).shape)
    pads = ints_attribute(node, "pads", ())
    return list(zip(pads[:rank], pads[rank:]))


def pad_fill(node: Node, graph: Graph) -> float:
    """The raw value of constant padding; attribute ``value`` is a real, of a quantized tensor a code."""
    kind, found = output_tensor(node, graph).type, node.attrs.get("value", 0.0)
    if not isinstance(kind, Fixed):
        return float(found)
    low, high = integer_range("int32")
    return clip_to("int32", fixed_constant(found, kind.frac)) if isfinite(found) else low if found < 0 else high


def pad_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    edges, x = pad_edges(node, graph), values[node.inputs[0]]
    kept = x[tuple(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high) in zip(x.shape, edges))]
    more = [(max(low, 0), max(high, 0)) for low, high in edges]
    if node.attrs.get("mode", "constant") == "constant":
        return [np.pad(kept, more, constant_values=pad_fill(node, graph))]
    return [np.pad(kept, more, mode=node.attrs["mode"])]


def depth_to_space_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    x, shape, order = values[node.inputs[0]], *depth_to_space(node, graph)
    return [x.reshape(shape).transpose(order).reshape(output_tensor(node, graph).shape)]


Moved = tuple[tuple[int, ...], tuple[int, ...]]  # the input seen in six dimensions, and their order in the output


def depth_to_space(node: Node, graph: Graph) -> Moved:
    batch, channels, height, width = required(node, graph, 0).shape
    block = int(node.attrs["blocksize"])
    left = channels // block**2
    if node.attrs.get("mode", "DCR") == "CRD":
        return (batch, left, block, block, height, width), (0, 1, 4, 2, 5, 3)
    return (batch, block, block, left, height, width), (0, 3, 4, 1, 5, 2)


def space_to_depth(node: Node, graph: Graph) -> Moved:
    batch, channels, height, width = required(node, graph, 0).shape
    block = int(node.attrs["blocksize"])
    return (batch, channels, height // block, block, width // block, block), (0, 3, 5, 1, 2, 4)


def space_to_depth_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    x, shape, order = values[node.inputs[0]], *space_to_depth(node, graph)
    return [x.reshape(shape).transpose(order).reshape(output_tensor(node, graph).shape)]


def pad_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    if isinstance(required(node, graph, 0).type, Integer):
        return {}
    low, high = interval(required(node, graph, 0))
    fill = node.attrs.get("value", 0.0)
    if node.attrs.get("mode", "constant") != "constant" or isinstance(required(node, graph, 0).type, Quantized):
        return {node.outputs[0]: (low, high)}
    return {node.outputs[0]: (min(low, fill), max(high, fill))}


def check_mode(node: Node, graph: Graph) -> str | None:
    found = node.attrs.get("mode", "constant")
    return None if found in PAD_MODES else str(found)


def check_reflection(node: Node, graph: Graph) -> str | None:
    """A reflection repeats each position at most once."""
    if node.attrs.get("mode", "constant") != "reflect":
        return None
    shape = required(node, graph, 0).shape
    wide = [(n, pads) for n, pads in zip(shape, pad_edges(node, graph)) if max(pads) > n - 1 + min(*pads, 0)]
    return f"pads {wide[0][1]} of {wide[0][0]} positions" if wide else None


def check_image(node: Node, graph: Graph) -> str | None:
    found = len(required(node, graph, 0).shape)
    return None if found == 4 else f"{found} dimensions"


def move(name: str, reference: Reference, *limits: Limit) -> Operator:
    return Operator(name, "moves", limits, reference, same_intervals, formats=same_format)


IMAGE = Limit("the input has four dimensions, NCHW", check_image)
ROWS = (
    move("Gather", gather_reference),
    move("Expand", expand_reference),
    move("Tile", tile_reference),
    move("DepthToSpace", depth_to_space_reference, IMAGE),
    move("SpaceToDepth", space_to_depth_reference, IMAGE),
    Operator(
        name="Pad",
        family="moves",
        limits=(
            Limit("the mode is constant, edge or reflect", check_mode),
            Limit("a reflection is shorter than its axis", check_reflection),
        ),
        reference=pad_reference,
        intervals=pad_intervals,
        formats=same_format,
    ),
)
