"""ONNX → Relay for picks and replacements of single elements at constant positions, all as one take of a flat tensor."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.relay_passes.onnx_elementwise import Converter
from epu.relay_passes.onnx_node import OnnxNode, Value
from epu.relay_passes.tvm_relay import relay

Positions = NDArray[np.int64]


def taken(node: OnnxNode, positions: Positions, *more: Value) -> Value:
    """Elements at ``positions`` of the flat first input, followed by those of ``more``."""
    parts = [node.emit(relay.reshape(value.expr, (prod(value.shape),))) for value in (node.input(0), *more)]
    flat = parts[0] if not more else node.emit(relay.concatenate(parts, 0))
    picked = node.emit(relay.take(flat, relay.const(positions.reshape(-1)), axis=0))
    return node.result(node.emit(relay.reshape(picked, positions.shape)), positions.shape)


def positions_of(node: OnnxNode) -> Positions:
    """The flat position of each element of the first input."""
    shape = node.input(0).shape
    return np.arange(prod(shape), dtype=np.int64).reshape(shape)


def _along(node: OnnxNode, indices: NDArray[Any], axis: int) -> tuple[Any, ...]:
    """``indices`` along ``axis``, and each other axis at its own place."""
    places = list(np.indices(indices.shape))
    places[axis] = np.where(indices < 0, indices + node.input(0).shape[axis], indices)
    return tuple(places)


def gather_elements(node: OnnxNode) -> Value:
    axis = node.attr("axis", 0) % node.input(0).rank
    return taken(node, positions_of(node)[_along(node, node.data(1), axis)])


def gather_nd(node: OnnxNode) -> Value:
    indices, batch = node.data(1), node.attr("batch_dims", 0)
    grids = np.indices(indices.shape[:-1])[:batch]
    return taken(node, positions_of(node)[(*grids, *np.moveaxis(indices, -1, 0))])


def _require_no_reduction(node: OnnxNode) -> None:
    reduction = node.text("reduction", "none")
    if reduction != "none":
        raise node.refuse("the reduction must be none", reduction, "Leave the node on the host")


def _replaced(node: OnnxNode, where: Any) -> Value:
    """The first input with the updates in place of what ``where`` selects; the last of several updates wins."""
    _require_no_reduction(node)
    positions, updates = positions_of(node), node.input(2)
    if prod(updates.shape) == 0:
        return taken(node, positions)
    positions[where] = positions.size + np.arange(prod(updates.shape)).reshape(updates.shape)
    return taken(node, positions, updates)


def scatter_elements(node: OnnxNode) -> Value:
    return _replaced(node, _along(node, node.data(1), node.attr("axis", 0) % node.input(0).rank))


def scatter_nd(node: OnnxNode) -> Value:
    return _replaced(node, tuple(np.moveaxis(node.data(1), -1, 0)))


def compress(node: OnnxNode) -> Value:
    positions, axis = positions_of(node), node.attr("axis", None)
    kept = np.flatnonzero(node.data(1))
    return taken(node, positions.reshape(-1)[kept] if axis is None else np.take(positions, kept, axis % positions.ndim))


def reverse_sequence(node: OnnxNode) -> Value:
    """The first ``sequence_lens[b]`` steps of batch ``b`` in reverse."""
    time_axis, batch_axis = node.attr("time_axis", 0), node.attr("batch_axis", 1)
    positions = np.moveaxis(positions_of(node), (batch_axis, time_axis), (0, 1)).copy()
    for row, length in zip(positions, node.data(1).tolist()):
        row[:length] = row[:length][::-1].copy()
    return taken(node, np.moveaxis(positions, (0, 1), (batch_axis, time_axis)))


def trilu(node: OnnxNode) -> Value:
    """The upper or lower triangle; 0 elsewhere."""
    value, diagonal = node.input(0), int(node.data(1).reshape(-1)[0]) if node.has(1) else 0
    ones = np.ones(value.shape, value.dtype)
    mask = np.triu(ones, diagonal) if node.attr("upper", 1) else np.tril(ones, diagonal)
    return node.result(node.emit(relay.multiply(value.expr, relay.const(mask, value.dtype))), value.shape)


CONVERTERS: dict[str, Converter] = {
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Compress": compress,
    "ReverseSequence": reverse_sequence,
    "Trilu": trilu,
}
