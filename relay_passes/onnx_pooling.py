"""ONNX → Relay for pooling, and the window arithmetic that convolution shares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from epu.relay_passes.onnx_elementwise import Converter
from epu.relay_passes.onnx_node import OnnxNode, Shape, Value
from epu.relay_passes.tvm_relay import relay

MAX_POOL = {1: relay.nn.max_pool1d, 2: relay.nn.max_pool2d, 3: relay.nn.max_pool3d}
AVERAGE_POOL = {1: relay.nn.avg_pool1d, 2: relay.nn.avg_pool2d, 3: relay.nn.avg_pool3d}
GLOBAL_AVERAGE_POOL = {1: relay.nn.global_avg_pool1d, 2: relay.nn.global_avg_pool2d, 3: relay.nn.global_avg_pool3d}


@dataclass(frozen=True)
class Window:
    """Sliding window of a pooling or convolution; ``pads`` is all begins, then all ends."""

    kernel: Shape
    strides: Shape
    dilations: Shape
    pads: Shape
    ceil: bool

    def out_size(self, size: int, axis: int) -> int:
        reach = self.dilations[axis] * (self.kernel[axis] - 1) + 1
        room = size + self.pads[axis] + self.pads[axis + len(self.kernel)] - reach
        if not self.ceil:
            return room // self.strides[axis] + 1
        count = -(-room // self.strides[axis]) + 1
        return count - int((count - 1) * self.strides[axis] >= size + self.pads[axis])

    def rounds_up(self, spatial: Shape) -> bool | None:
        """Whether all axes have the outputs of ceil_mode, of which Relay keeps windows that start in the end padding too;
        None where an axis wants the one and another the other."""
        plain, full = replace(self, ceil=False), self.out_shape(spatial)
        if full == plain.out_shape(spatial):
            return False
        rooms = [plain.out_size(size + self.strides[axis] - 1, axis) for axis, size in enumerate(spatial)]
        return True if full == tuple(rooms) else None

    def out_shape(self, spatial: Shape) -> Shape:
        return tuple(self.out_size(size, axis) for axis, size in enumerate(spatial))


def window_of(node: OnnxNode, spatial: Shape, kernel: Shape) -> Window:
    """Window of a node over ``spatial`` sizes, with ``auto_pad`` resolved to numbers."""
    ones = (1,) * len(spatial)
    strides, dilations = tuple(node.attr("strides", ones)), tuple(node.attr("dilations", ones))
    mode = node.text("auto_pad", "NOTSET")
    pads = tuple(node.attr("pads", (0,) * 2 * len(spatial)))
    if mode == "VALID":
        pads = (0,) * 2 * len(spatial)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        pads = _same_pads(spatial, kernel, strides, dilations, mode)
    return Window(kernel, strides, dilations, pads, bool(node.attr("ceil_mode", 0)))


def _same_pads(spatial: Shape, kernel: Shape, strides: Shape, dilations: Shape, mode: str) -> Shape:
    totals = [
        max((-(-size // stride) - 1) * stride + dilation * (taps - 1) + 1 - size, 0)
        for size, taps, stride, dilation in zip(spatial, kernel, strides, dilations)
    ]
    small, large = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return tuple(small + large) if mode == "SAME_UPPER" else tuple(large + small)


def spatial_function(node: OnnxNode, table: dict[int, Any]) -> Any:
    """The Relay function for the node's number of spatial axes."""
    axes = node.input(0).rank - 2
    if axes not in table:
        raise node.refuse("the input must have 1 to 3 spatial axes", axes, "Reshape it")
    return table[axes]


def pool_expr(node: OnnxNode, table: dict[int, Any], expr: Any, **more: Any) -> tuple[Any, Shape]:
    """Relay call of a windowed pooling over ``expr``, and its shape."""
    shape = node.input(0).shape
    window = window_of(node, shape[2:], tuple(node.attr("kernel_shape")))
    function = spatial_function(node, table)
    ceil = window.rounds_up(shape[2:])
    if ceil is None:
        remedy = "Give explicit pads and ceil_mode 0"
        raise node.refuse("ceil_mode must drop no window in the padding", list(window.out_shape(shape[2:])), remedy)
    call = function(
        expr,
        pool_size=window.kernel,
        strides=window.strides,
        dilation=window.dilations,
        padding=window.pads,
        ceil_mode=ceil,
        **more,
    )
    return node.emit(call), shape[:2] + window.out_shape(shape[2:])


def average_pool_expr(node: OnnxNode, expr: Any) -> tuple[Any, Shape]:
    """Relay call of an average pooling over ``expr``, and its shape."""
    return pool_expr(node, AVERAGE_POOL, expr, count_include_pad=bool(node.attr("count_include_pad", 0)))


def global_average_expr(node: OnnxNode, expr: Any) -> tuple[Any, Shape]:
    """Relay call of a global average pooling over ``expr``, and its shape."""
    value = node.input(0)
    call = spatial_function(node, GLOBAL_AVERAGE_POOL)(expr)
    return node.emit(call), value.shape[:2] + (1,) * (value.rank - 2)


def global_max_pool(node: OnnxNode) -> Value:
    """As a maximum over the spatial axes."""
    value = node.input(0)
    call = relay.max(value.expr, axis=tuple(range(2, value.rank)), keepdims=True)
    return node.result(node.emit(call), value.shape[:2] + (1,) * (value.rank - 2))


def max_pool(node: OnnxNode) -> Value:
    return node.result(*pool_expr(node, MAX_POOL, node.input(0).expr))


def average_pool(node: OnnxNode) -> Value:
    return node.result(*average_pool_expr(node, node.input(0).expr))


def global_average_pool(node: OnnxNode) -> Value:
    return node.result(*global_average_expr(node, node.input(0).expr))


CONVERTERS: dict[str, Converter] = {
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": global_average_pool,
    "GlobalMaxPool": global_max_pool,
}
