"""ONNX → Relay for functions that Relay spells as several calls (``rows_spelled`` knows them again) and normalisations."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np

from epu.relay_passes.onnx_elementwise import Converter
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


def _log_softmax(s: Spelling, x: Any, node: OnnxNode) -> Any:
    rank = node.input(0).rank
    axis = node.attr("axis", -1 if node.opset >= 13 else 1) % rank
    if node.opset < 13 and axis != rank - 1:
        raise node.refuse("axis must be the last one before opset 13", axis, "Raise the opset")
    below = s.subtract(x, s.max(x, axis=(axis,), keepdims=True))
    return s.subtract(below, s.log(s.sum(s.exp(below), axis=(axis,), keepdims=True)))


def _prelu(s: Spelling, x: Any, node: OnnxNode) -> Any:
    """One slope, or one per channel."""
    slope, value = node.data(1).astype(np.float32), node.input(0)
    if slope.size == 1:
        return s.leaky_relu(x, alpha=float(slope.reshape(-1)[0]))
    channels = value.shape[1] if value.rank > 1 else 1
    if slope.shape != (channels, *(1,) * (value.rank - 2)):
        raise node.refuse("there must be one slope, or one per channel", slope.shape, "Use Max, Min, Mul and Add")
    return s.prelu(x, relay.const(slope.reshape(-1)), axis=1)


def reduce_l2(node: OnnxNode) -> Value:
    value, keep, s = node.input(0), bool(node.attr("keepdims", 1)), Spelling(node)
    named = node.data(1).tolist() if node.has(1) else node.attr("axes", [])
    axes = tuple(sorted(axis % value.rank for axis in named)) or tuple(range(value.rank))
    kept = [1 if axis in axes else size for axis, size in enumerate(value.shape) if keep or axis not in axes]
    return node.result(s.sqrt(s.sum(s.multiply(value.expr, value.expr), axis=axes, keepdims=keep)), tuple(kept))


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
    "LogSoftmax": _function(_log_softmax),
    "PRelu": _function(_prelu),
    "ReduceL2": reduce_l2,
    "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization,
}
