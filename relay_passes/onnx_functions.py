"""ONNX → Relay for functions that Relay spells as several calls (``rows_spelled`` knows them again) and normalisations."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any

import numpy as np

from epu.relay_passes.onnx_elementwise import FLOAT_MAX, Converter, along_last, reduced_axes
from epu.relay_passes.onnx_node import OnnxNode, Value
from epu.relay_passes.tvm_relay import relay

GELU_ROOT, GELU_CUBE = 0.7978845608028654, 0.044715
SELU_ALPHA, SELU_GAMMA = 1.6732632423543772, 1.0507009873554805


class Spelling:
    """Relay calls that carry the node's name; numbers become float32 constants."""

    def __init__(self, node: OnnxNode) -> None:
        self.node = node

    def __getattr__(self, name: str) -> Any:
        function = getattr(relay, name, None) or getattr(relay.nn, name)
        return lambda *args, **attrs: self.node.emit(function(*map(self.expr, args), **attrs))

    def clip(self, x: Any, low: float, high: float) -> Any:
        """Relay's bounds are attributes."""
        return self.node.emit(relay.clip(x, low, high))

    @staticmethod
    def expr(value: Any) -> Any:
        return relay.const(np.float32(value)) if isinstance(value, float) else value


def _function(body: Any) -> Converter:
    """``body(spelling, x expression, node)`` of the shape of x."""

    def convert(node: OnnxNode) -> Value:
        value = node.input(0)
        return node.result(body(Spelling(node), value.expr, node), value.shape)

    return convert


def _gelu(s: Spelling, x: Any, node: OnnxNode) -> Any:
    if node.text("approximate", "none") == "tanh":
        cube = s.multiply(s.multiply(x, x), x)
        curve = s.tanh(s.multiply(GELU_ROOT, s.add(x, s.multiply(GELU_CUBE, cube))))
    else:
        curve = s.erf(s.multiply(x, sqrt(0.5)))
    return s.multiply(x, s.multiply(0.5, s.add(1.0, curve)))


def _softplus(s: Spelling, x: Any, node: OnnxNode | None = None) -> Any:
    return s.add(s.relu(x), s.log(s.add(1.0, s.exp(s.negative(s.abs(x))))))


def _elu(s: Spelling, x: Any, alpha: float) -> Any:
    return s.add(s.relu(x), s.multiply(float(alpha), s.subtract(s.exp(s.minimum(x, 0.0)), 1.0)))


def _selu(s: Spelling, x: Any, node: OnnxNode) -> Any:
    alpha, gamma = node.attr("alpha", SELU_ALPHA), node.attr("gamma", SELU_GAMMA)
    return s.multiply(_elu(s, x, alpha), float(gamma))


def _below(s: Spelling, x: Any, top: Any) -> Any:
    """``x - top``, which the clip says is at most 0: without it the exponential's format would have room for all of ``x``."""
    return s.clip(s.subtract(x, top), -FLOAT_MAX, 0.0)


def log_softmax(node: OnnxNode) -> Value:
    """As Softmax, along one axis or over all axes from ``axis`` on."""
    s = Spelling(node)

    def body(x: Any, axis: int) -> Any:
        below = _below(s, x, s.max(x, axis=(axis,), keepdims=True))
        return s.subtract(below, s.log(s.sum(s.exp(below), axis=(axis,), keepdims=True)))

    return along_last(node, node.attr("axis", -1 if node.opset >= 13 else 1) % node.input(0).rank, body)


def _celu(s: Spelling, x: Any, node: OnnxNode) -> Any:
    alpha = float(node.attr("alpha", 1.0))
    return s.multiply(alpha, _elu(s, s.multiply(x, 1 / alpha), 1.0))


def _swish(s: Spelling, x: Any, node: OnnxNode) -> Any:
    alpha = float(node.attr("alpha", 1.0))
    return s.multiply(x, s.sigmoid(x if alpha == 1 else s.multiply(alpha, x)))


def _thresholded_relu(s: Spelling, x: Any, node: OnnxNode) -> Any:
    return s.where(s.greater(x, float(node.attr("alpha", 1.0))), x, 0.0)


def _shrink(s: Spelling, x: Any, node: OnnxNode) -> Any:
    """``bias`` nearer to 0 outside ``lambd``, 0 within."""
    lambd, bias = float(node.attr("lambd", 0.5)), float(node.attr("bias", 0.0))
    below = s.where(s.less(x, -lambd), s.add(x, bias), 0.0)
    return s.where(s.greater(x, lambd), s.subtract(x, bias), below)


def _prelu(s: Spelling, x: Any, node: OnnxNode) -> Any:
    """One slope, or one per channel."""
    slope, value = node.data(1).astype(np.float32), node.input(0)
    if slope.size == 1:
        return s.leaky_relu(x, alpha=float(slope.reshape(-1)[0]))
    channels = value.shape[1] if value.rank > 1 else 1
    if slope.shape != (channels, *(1,) * (value.rank - 2)):
        raise node.refuse("there must be one slope, or one per channel", slope.shape, "Use Max, Min, Mul and Add")
    return s.prelu(x, relay.const(slope.reshape(-1)), axis=1)


Reduction = Callable[..., Any]  # (spelling, x, axes and keepdims) -> reduced


def _reduced(body: Reduction) -> Converter:
    def convert(node: OnnxNode) -> Value:
        value, keep, axes = node.input(0), bool(node.attr("keepdims", 1)), reduced_axes(node)
        kept = [1 if axis in axes else size for axis, size in enumerate(value.shape) if keep or axis not in axes]
        return node.result(body(Spelling(node), value.expr, axis=axes, keepdims=keep), tuple(kept))

    return convert


def _l2(s: Spelling, x: Any, **over: Any) -> Any:
    return s.sqrt(s.sum(s.multiply(x, x), **over))


def _log_sum_exp(s: Spelling, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Of what lies below the largest, which keeps the exponentials within 1."""
    top = s.max(x, axis=axis, keepdims=True)
    total = s.log(s.sum(s.exp(_below(s, x, top)), axis=axis, keepdims=keepdims))
    return s.add(total, top if keepdims else s.squeeze(top, axis=axis))


def lp_normalization(node: OnnxNode) -> Value:
    value, s = node.input(0), Spelling(node)
    over = {"axis": (node.attr("axis", -1) % value.rank,), "keepdims": True}
    if node.attr("p", 2) not in (1, 2):
        raise node.refuse("p must be 1 or 2", node.attr("p"), "Build it from Pow and ReduceSum")
    size = s.sum(s.abs(value.expr), **over) if node.attr("p", 2) == 1 else _l2(s, value.expr, **over)
    return node.result(s.divide(value.expr, size), value.shape)


def rms_normalization(node: OnnxNode) -> list[Value]:
    """``x * scale * sqrt(N) / norm(x, sqrt(N * epsilon))`` over all axes from ``axis`` on: one norm of squares kept in 64
    bits, epsilon as one element more. The quotient is the last call, so that the calibrated range is its own."""
    value, s = node.input(0), Spelling(node)
    axis = node.attr("axis", -1) % value.rank
    lead, size = value.shape[:axis], prod(value.shape[axis:])
    if node.num_outputs > 1:
        raise node.refuse("there must be one output", node.num_outputs, "Leave the second output unused")
    rows = value.expr if axis == value.rank - 1 else s.reshape(value.expr, newshape=(*lead, size))
    guard = relay.const(np.full((*lead, 1), sqrt(size * node.attr("epsilon", 1e-5)), np.float32))
    norm = _l2(s, node.emit(relay.concatenate([rows, guard], axis=axis)), axis=(axis,), keepdims=True)
    kept = s.reshape(norm, newshape=(*lead, *(1,) * (value.rank - axis))) if axis < value.rank - 1 else norm
    scale = relay.const((node.data(1) * np.float32(sqrt(size))).astype(np.float32))
    return [node.result(s.divide(s.multiply(value.expr, scale), kept), value.shape)]


def instance_normalization(node: OnnxNode) -> Value:
    return _grouped(node, node.input(0).shape[1], node.data(1), node.data(2))


def group_normalization(node: OnnxNode) -> Value:
    """Scale and bias are per group before opset 21, per channel since."""
    channels, groups = node.input(0).shape[1], node.attr("num_groups")
    scale, bias = (np.repeat(each, channels // each.size) for each in (node.data(1), node.data(2)))
    return _grouped(node, groups, scale, bias)


def _grouped(node: OnnxNode, groups: int, scale: Any, bias: Any) -> Value:
    """Layer normalisation of each group of channels, then one product and one sum per channel."""
    value, s = node.input(0), Spelling(node)
    size = prod(value.shape[1:]) // groups
    rows = s.reshape(value.expr, newshape=(value.shape[0], groups, size))
    ones, zeros = (relay.const(np.full(size, each, np.float32)) for each in (1, 0))
    normal = s.layer_norm(rows, ones, zeros, axis=-1, epsilon=node.attr("epsilon", 1e-5))
    whole = s.reshape(normal, newshape=value.shape)
    shape = (-1, *(1,) * (value.rank - 2))
    factor, offset = (relay.const(np.asarray(each, np.float32).reshape(shape)) for each in (scale, bias))
    return node.result(s.add(s.multiply(whole, factor), offset), value.shape)


CONVERTERS: dict[str, Converter] = {
    "Gelu": _function(_gelu),
    "Softplus": _function(_softplus),
    "Elu": _function(lambda s, x, node: _elu(s, x, node.attr("alpha", 1.0))),
    "Selu": _function(_selu),
    "Reciprocal": _function(lambda s, x, node: s.divide(1.0, x)),
    "Softsign": _function(lambda s, x, node: s.divide(x, s.add(s.abs(x), 1.0))),
    "Mish": _function(lambda s, x, node: s.multiply(x, s.tanh(_softplus(s, x)))),
    "Celu": _function(_celu),
    "Swish": _function(_swish),
    "ThresholdedRelu": _function(_thresholded_relu),
    "Shrink": _function(_shrink),
    "LogSoftmax": log_softmax,
    "PRelu": _function(_prelu),
    "ReduceL2": _reduced(_l2),
    "ReduceL1": _reduced(lambda s, x, **over: s.sum(s.abs(x), **over)),
    "ReduceSumSquare": _reduced(lambda s, x, **over: s.sum(s.multiply(x, x), **over)),
    "ReduceLogSum": _reduced(lambda s, x, **over: s.log(s.sum(x, **over))),
    "ReduceLogSumExp": _reduced(_log_sum_exp),
    "LpNormalization": lp_normalization,
    "RMSNormalization": rms_normalization,
    "SimplifiedLayerNormalization": rms_normalization,
    "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization,
}
