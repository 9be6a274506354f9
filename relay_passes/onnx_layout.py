"""ONNX → Relay for operations that move or pick elements and compute none."""

from __future__ import annotations

from math import prod

import numpy as np

from epu.relay_passes.onnx_elementwise import Converter
from epu.relay_passes.onnx_node import OnnxNode, Shape, Value
from epu.relay_passes.tvm_relay import relay


def reshape_to(node: OnnxNode, shape: Shape) -> Value:
    """Output of ``node`` as its first input in another shape."""
    return node.result(node.emit(relay.reshape(node.input(0).expr, shape)), shape)


def reshape(node: OnnxNode) -> Value:
    """0 copies a dimension (unless ``allowzero``), -1 is what is left."""
    old = node.input(0).shape
    asked = [int(size) for size in (node.data(1) if node.has(1) else node.attr("shape"))]
    if not node.attr("allowzero", 0):
        asked = [old[axis] if size == 0 else size for axis, size in enumerate(asked)]
    rest = prod(size for size in asked if size != -1)
    shape = tuple(prod(old) // rest if size == -1 else size for size in asked)
    if prod(shape) != prod(old):
        raise node.refuse(f"shape {shape} must hold {prod(old)} elements", prod(shape), "Repair the shape input")
    return reshape_to(node, shape)


def flatten(node: OnnxNode) -> Value:
    shape = node.input(0).shape
    axis = node.attr("axis", 1)
    axis += len(shape) if axis < 0 else 0
    return reshape_to(node, (prod(shape[:axis]), prod(shape[axis:])))


def _axes(node: OnnxNode, rank: int) -> list[int]:
    axes = node.data(1).tolist() if node.has(1) else node.attr("axes", [])
    return [axis % rank for axis in axes]


def squeeze(node: OnnxNode) -> Value:
    shape = node.input(0).shape
    axes = _axes(node, len(shape)) or [axis for axis, size in enumerate(shape) if size == 1]
    return reshape_to(node, tuple(size for axis, size in enumerate(shape) if axis not in axes))


def unsqueeze(node: OnnxNode) -> Value:
    shape = list(node.input(0).shape)
    count = len(node.data(1).tolist() if node.has(1) else node.attr("axes"))
    for axis in sorted(_axes(node, len(shape) + count)):
        shape.insert(axis, 1)
    return reshape_to(node, tuple(shape))


def transpose(node: OnnxNode) -> Value:
    value = node.input(0)
    perm = node.attr("perm", list(range(value.rank))[::-1])
    expr = node.emit(relay.transpose(value.expr, perm))
    return node.result(expr, tuple(value.shape[axis] for axis in perm))


def concat(node: OnnxNode) -> Value:
    values = [node.input(index) for index in range(len(node.inputs))]
    axis = node.attr("axis") % values[0].rank
    expr = node.emit(relay.concatenate([value.expr for value in values], axis))
    return node.result(expr, concatenated(values, axis))


def concatenated(values: list[Value], axis: int) -> Shape:
    """Shape of the concatenation of ``values``."""
    shape = list(values[0].shape)
    shape[axis] = sum(value.shape[axis] for value in values)
    return tuple(shape)


def slice_(node: OnnxNode) -> Value:
    """Bounds are attributes before opset 10 and constant inputs since; resolved here to non-negative numbers."""
    value = node.input(0)
    starts, ends, axes, steps = _bounds(node)
    begin, end, stride, shape = [], [], [], list(value.shape)
    for start, stop, axis, step in zip(starts, ends, axes, steps):
        span = range(value.shape[axis])[slice(start, stop, step)]
        shape[axis] = len(span)
        begin.append(span.start)
        end.append(span.stop if span.stop >= 0 else -value.shape[axis] - 1)
        stride.append(step)
    expr = relay.strided_slice(value.expr, begin, end, stride, axes=axes)
    return node.result(node.emit(expr), tuple(shape))


def _bounds(node: OnnxNode) -> tuple[list[int], list[int], list[int], list[int]]:
    rank = node.input(0).rank
    given = node.has(1)
    starts = node.data(1).tolist() if given else node.attr("starts")
    ends = node.data(2).tolist() if given else node.attr("ends")
    axes = node.data(3).tolist() if node.has(3) else node.attr("axes", list(range(len(starts))))
    steps = node.data(4).tolist() if node.has(4) else [1] * len(starts)
    return starts, ends, [axis % rank for axis in axes], steps


def split(node: OnnxNode) -> list[Value]:
    """One slice per output."""
    value = node.input(0)
    axis = node.attr("axis", 0) % value.rank
    sizes = node.data(1).tolist() if node.has(1) else node.attr("split", _even(value.shape[axis], node.num_outputs))
    ends = np.cumsum(sizes).tolist()
    return [_part(node, axis, end - size, end, index) for index, (size, end) in enumerate(zip(sizes, ends))]


def _even(size: int, count: int) -> list[int]:
    """Equal sizes, the last one smaller where they do not fit."""
    chunk = -(-size // count)
    return [chunk] * (count - 1) + [size - chunk * (count - 1)]


def _part(node: OnnxNode, axis: int, begin: int, end: int, output: int) -> Value:
    value = node.input(0)
    expr = node.emit(relay.strided_slice(value.expr, [begin], [end], [1], axes=[axis]), output)
    return node.result(expr, (*value.shape[:axis], end - begin, *value.shape[axis + 1 :]))


def gather(node: OnnxNode) -> Value:
    """Constant indices are made non-negative; computed ones (token ids) must be."""
    value, indices = node.input(0), node.input(1)
    axis = node.attr("axis", 0) % value.rank
    if indices.data is not None:
        indices = indices.map_data(np.where(indices.data < 0, indices.data + value.shape[axis], indices.data))
    expr = node.emit(relay.take(value.expr, indices.expr, axis=axis))
    return node.result(expr, value.shape[:axis] + indices.shape + value.shape[axis + 1 :])


def identity(node: OnnxNode) -> Value:
    value = node.input(0)
    return node.result(node.emit(relay.copy(value.expr)), value.shape)


def dropout(node: OnnxNode) -> Value:
    """Of inference: the input."""
    if node.has(2) and node.data(2).any():
        raise node.refuse("training_mode must be false", True, "Export the model for inference")
    return identity(node)


CODES = ("int8", "uint8", "int32")  # integers that are read as reals of scale 1


def cast(node: OnnxNode) -> Value:
    from onnx import helper

    value = node.input(0)
    dtype = str(helper.tensor_dtype_to_np_dtype(node.attr("to")))
    node.require_dtype(dtype)
    if dtype == "float32" and value.dtype in CODES:
        one, zero = relay.const(np.float32(1)), relay.const(np.int32(0))
        return node.result(node.emit(relay.qnn.op.dequantize(value.expr, one, zero)), value.shape, dtype)
    expr = relay.copy(value.expr) if dtype == value.dtype else relay.cast(value.expr, dtype)
    return node.result(node.emit(expr), value.shape, dtype)


def expand(node: OnnxNode) -> Value:
    value = node.input(0)
    shape = np.broadcast_shapes(value.shape, tuple(node.data(1).tolist()))
    return node.result(node.emit(relay.broadcast_to(value.expr, shape)), shape)


def tile(node: OnnxNode) -> Value:
    value, repeats = node.input(0), [int(each) for each in node.data(1)]
    shape = tuple(size * count for size, count in zip(value.shape, repeats))
    return node.result(node.emit(relay.tile(value.expr, repeats)), shape)


def depth_to_space(node: OnnxNode) -> Value:
    batch, channels, height, width = node.input(0).shape
    block = node.attr("blocksize")
    expr = relay.nn.depth_to_space(node.input(0).expr, block, "NCHW", node.text("mode", "DCR"))
    return node.result(node.emit(expr), (batch, channels // block**2, height * block, width * block))


def space_to_depth(node: OnnxNode) -> Value:
    batch, channels, height, width = node.input(0).shape
    block, mode = node.attr("blocksize"), node.text("mode", "DCR")
    if mode != "DCR":
        raise node.refuse("the mode must be DCR", mode, "Build it from Reshape and Transpose")
    expr = relay.nn.space_to_depth(node.input(0).expr, block, "NCHW")
    return node.result(node.emit(expr), (batch, channels * block**2, height // block, width // block))


def pad(node: OnnxNode) -> Value:
    """Negative padding is a slice of its own before the rest. Bounds are attributes before opset 11."""
    value, mode = node.input(0), node.text("mode", "constant")
    if mode not in ("constant", "edge", "reflect"):
        raise node.refuse("the mode must be constant, edge or reflect", mode, "Build it from slices and a Concat")
    edges = _pad_edges(node)
    cut = [(max(-low, 0), size - max(-high, 0)) for size, (low, high) in zip(value.shape, edges)]
    expr, more = value.expr, [(max(low, 0), max(high, 0)) for low, high in edges]
    if cut != [(0, size) for size in value.shape]:
        begin, end = zip(*cut)
        expr = node.emit(relay.strided_slice(expr, begin, end))
    fill = node.data(2).reshape(()) if node.has(2) else np.array(node.attr("value", 0.0))
    call = relay.nn.pad(expr, more, relay.const(fill.astype(value.dtype)), mode)
    shape = tuple(stop - start + low + high for (start, stop), (low, high) in zip(cut, more))
    return node.result(node.emit(call), shape)


def _pad_edges(node: OnnxNode) -> list[tuple[int, int]]:
    rank = node.input(0).rank
    given = node.data(1).tolist() if node.has(1) else node.attr("pads")
    axes = [int(axis) % rank for axis in node.data(3)] if node.has(3) else list(range(rank))
    edges = [(0, 0)] * rank
    for axis, low, high in zip(axes, given[: len(axes)], given[len(axes) :]):
        edges[axis] = (low, high)
    return edges


CONVERTERS: dict[str, Converter] = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Transpose": transpose,
    "Concat": concat,
    "Slice": slice_,
    "Split": split,
    "Gather": gather,
    "Identity": identity,
    "Dropout": dropout,
    "Cast": cast,
    "Expand": expand,
    "Tile": tile,
    "Pad": pad,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
}
