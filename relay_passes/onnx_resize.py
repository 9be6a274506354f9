"""ONNX → Relay for resizing: Relay's own resize where it means the same, else a take or a product with constants per axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.relay_passes.onnx_elementwise import Converter
from epu.relay_passes.onnx_linear import product_along
from epu.relay_passes.onnx_node import OnnxNode, Shape, Value
from epu.relay_passes.resize_weights import ROUNDINGS, Axis, coordinates, outside, weights
from epu.relay_passes.tvm_relay import relay

METHODS = {"nearest": "nearest_neighbor", "linear": "linear"}
RELAY_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
FIRST_OPSET_WITH_ROI = 11
WHOLE = 1e-4  # of a size that a scale gives


@dataclass(frozen=True)
class Resize:
    """What the attributes and constant inputs of a node ask for, of the axes that change."""

    shape: Shape
    axes: tuple[Axis, ...]
    mode: str
    coordinates: str
    nearest: str
    extrapolation: float


def resize(node: OnnxNode) -> Value:
    """Any axes, by constant ``sizes`` (input 3) or ``scales`` (input 2, or 1 in opset 10)."""
    asked = _asked(node)
    _require_clear(node, asked)
    if _is_plain(node, asked):
        return _by_relay(node, asked)
    along = _picked if asked.mode == "nearest" else _weighted
    if asked.mode != "nearest" and node.input(0).dtype != "float32":
        raise node.refuse("a tensor of codes is resized along axes 2 and 3", asked.shape, "Dequantise it first")
    value, current = node.input(0).expr, node.input(0).shape
    if not asked.axes:
        value = node.emit(relay.copy(value))
    for axis in asked.axes:
        value = along(node, value, current, axis, asked)
        current = (*current[: axis.index], axis.out, *current[axis.index + 1 :])
        value = _extrapolated(node, value, axis, asked)
    return node.result(value, asked.shape)


def _asked(node: OnnxNode) -> Resize:
    value = node.input(0)
    is_old = node.opset < FIRST_OPSET_WITH_ROI
    named = [axis % value.rank for axis in node.attr("axes", range(value.rank))]
    sizes = [int(each) for each in node.data(3)] if node.has(3) else None
    scales = [float(each) for each in node.data(1 if is_old else 2)] if sizes is None else []
    if sizes is not None:
        scales, sizes = _kept_aspect(node, named, sizes)
    pairs = zip(named, scales, sizes or [None] * len(named))
    found = {index: (scale, size) for index, scale, size in pairs}
    roi = node.data(1).reshape(2, -1) if not is_old and node.has(1) and node.data(1).size else None
    axes, shape = [], list(value.shape)
    for place, index in enumerate(named):
        scale, size = found[index]
        shape[index] = size if size is not None else int(np.floor(value.shape[index] * scale + WHOLE))
        start, end = (0.0, 1.0) if roi is None else map(float, roi[:, place])
        axis = Axis(index, value.shape[index], shape[index], scale, start, end)
        axes += [axis] if axis.size != axis.out or _crops(node, axis) else []
    return Resize(
        tuple(shape),
        tuple(axes),
        node.text("mode", "nearest"),
        node.text("coordinate_transformation_mode", "asymmetric" if is_old else "half_pixel"),
        "floor" if is_old else node.text("nearest_mode", "round_prefer_floor"),
        float(node.attr("extrapolation_value", 0.0)),
    )


def _crops(node: OnnxNode, axis: Axis) -> bool:
    return node.text("coordinate_transformation_mode", "") == "tf_crop_and_resize" and (axis.start, axis.end) != (0, 1)


def _kept_aspect(node: OnnxNode, named: list[int], sizes: list[int]) -> tuple[list[float], list[int]]:
    """Scales and sizes; with a policy one scale for all axes."""
    old = [node.input(0).shape[index] for index in named]
    scales = [size / before for size, before in zip(sizes, old)]
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return scales, sizes
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [scale] * len(old), [int(np.floor(scale * before + 0.5)) for before in old]


def _is_plain(node: OnnxNode, asked: Resize) -> bool:
    """Whether Relay's resize, which knows the sizes alone, means the same."""
    changed = {axis.index for axis in asked.axes}
    exact = all(abs(axis.size * axis.scale - axis.out) <= WHOLE for axis in asked.axes)
    single = asked.coordinates == "pytorch_half_pixel" and any(axis.out == 1 for axis in asked.axes)
    return (
        node.input(0).rank == 4
        and bool(changed)
        and changed <= {2, 3}
        and asked.mode in METHODS
        and asked.coordinates in RELAY_COORDINATES
        and exact
        and not single
        and not node.attr("antialias", 0)
    )


def _require_clear(node: OnnxNode, asked: Resize) -> None:
    """ONNX counts aligned corners from the size with its fraction, ONNX Runtime from the whole size."""
    cut = [axis for axis in asked.axes if abs(axis.size * axis.scale - axis.out) > WHOLE]
    if cut and asked.coordinates == "align_corners":
        found = [round(axis.size * axis.scale, 3) for axis in cut]
        raise node.refuse("size * scale must be whole where corners are aligned", found, "Give sizes instead")


def _by_relay(node: OnnxNode, asked: Resize) -> Value:
    where = asked.coordinates
    call = relay.image.resize2d(
        node.input(0).expr,
        asked.shape[2:],
        layout="NCHW",
        method=METHODS[asked.mode],
        coordinate_transformation_mode="half_pixel" if where == "pytorch_half_pixel" else where,
        rounding_method=asked.nearest if asked.mode == "nearest" else "",
    )
    return node.result(node.emit(call), asked.shape)


def _picked(node: OnnxNode, value: Any, shape: Shape, axis: Axis, asked: Resize) -> Any:
    places = ROUNDINGS[asked.nearest](coordinates(asked.coordinates, axis))
    indices = np.clip(places, 0, axis.size - 1).astype(np.int64)
    return node.emit(relay.take(value, relay.const(indices), axis=axis.index))


def _weighted(node: OnnxNode, value: Any, shape: Shape, axis: Axis, asked: Resize) -> Any:
    """Rows along the axis times [out, size] weights."""
    if asked.mode not in ("linear", "cubic"):
        raise node.refuse("the mode must be nearest, linear or cubic", asked.mode, "Leave it on the host")
    matrix = weights(
        asked.mode,
        coordinates(asked.coordinates, axis),
        axis,
        cubic=float(node.attr("cubic_coeff_a", -0.75)),
        antialias=bool(node.attr("antialias", 0)),
        exclude_outside=bool(node.attr("exclude_outside", 0)),
    )
    return product_along(node, value, shape, axis.index, matrix)


def _extrapolated(node: OnnxNode, value: Any, axis: Axis, asked: Resize) -> Any:
    """Positions outside the input hold ``extrapolation_value``; only cropping reaches them."""
    if asked.coordinates != "tf_crop_and_resize":
        return value
    beyond: NDArray[np.bool_] = outside(coordinates(asked.coordinates, axis), axis)
    if not beyond.any():
        return value
    shape = [1] * len(asked.shape)
    shape[axis.index] = axis.out
    fill = relay.const(np.float32(asked.extrapolation))
    return node.emit(relay.where(relay.const(beyond.reshape(shape)), fill, value))


CONVERTERS: dict[str, Converter] = {"Resize": resize, "Upsample": resize}
