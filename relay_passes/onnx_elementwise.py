"""ONNX → Relay for elementwise float operations, reductions, softmax and layer normalisation."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from epu.relay_passes.onnx_node import OnnxNode, Value, constant
from epu.relay_passes.tvm_relay import relay

Converter = Callable[[OnnxNode], Value | list[Value]]
FLOAT_MAX = float(np.finfo(np.float32).max)


def _unary(function: Any) -> Converter:
    def convert(node: OnnxNode) -> Value:
        value = node.input(0)
        return node.result(node.emit(function(value.expr)), value.shape)

    return convert


def _binary(function: Any) -> Converter:
    def convert(node: OnnxNode) -> Value:
        left, right = node.input(0), node.input(1)
        expr = node.emit(function(left.expr, right.expr))
        return node.result(expr, np.broadcast_shapes(left.shape, right.shape))

    return convert


def _variadic(function: Any) -> Converter:
    def convert(node: OnnxNode) -> Value:
        expr, shape = node.input(0).expr, node.input(0).shape
        for value in map(node.input, range(1, len(node.inputs))):
            expr, shape = node.emit(function(expr, value.expr)), np.broadcast_shapes(shape, value.shape)
        return node.result(expr if len(node.inputs) > 1 else node.emit(relay.copy(expr)), shape)

    return convert


def _compare(function: Any) -> Converter:
    def convert(node: OnnxNode) -> Value:
        value = _binary(function)(node)
        return node.result(value.expr, value.shape, "bool")

    return convert


def mean(node: OnnxNode) -> Value:
    total = _variadic(relay.add)(node)
    return node.result(node.emit(relay.divide(total.expr, relay.const(np.float32(len(node.inputs))))), total.shape)


def clip(node: OnnxNode) -> Value:
    """Bounds are attributes before opset 11 and constant inputs since."""
    low = float(node.data(1)) if node.has(1) else float(node.attr("min", -FLOAT_MAX))
    high = float(node.data(2)) if node.has(2) else float(node.attr("max", FLOAT_MAX))
    value = node.input(0)
    return node.result(node.emit(relay.clip(value.expr, low, high)), value.shape)


def _affine_clip(node: OnnxNode, alpha: float, beta: float) -> Any:
    value = node.input(0)
    scaled = node.emit(relay.multiply(value.expr, relay.const(np.float32(alpha))))
    shifted = node.emit(relay.add(scaled, relay.const(np.float32(beta))))
    return node.emit(relay.clip(shifted, 0.0, 1.0))


def hard_sigmoid(node: OnnxNode) -> Value:
    return node.result(_affine_clip(node, node.attr("alpha", 0.2), node.attr("beta", 0.5)), node.input(0).shape)


def hard_swish(node: OnnxNode) -> Value:
    value = node.input(0)
    gate = _affine_clip(node, 1 / 6, 0.5)
    return node.result(node.emit(relay.multiply(value.expr, gate)), value.shape)


def leaky_relu(node: OnnxNode) -> Value:
    value = node.input(0)
    return node.result(node.emit(relay.nn.leaky_relu(value.expr, node.attr("alpha", 0.01))), value.shape)


def softmax(node: OnnxNode) -> Value:
    """Since opset 13 along one axis; before, over all axes from ``axis`` on."""
    axis = node.attr("axis", -1 if node.opset >= 13 else 1) % node.input(0).rank
    return along_last(node, axis, lambda flat, last: node.emit(relay.nn.softmax(flat, last)))


def along_last(node: OnnxNode, axis: int, body: Callable[[Any, int], Any]) -> Value:
    """``body(expression, its last axis)`` along one axis of the first input since opset 13, before over all axes from
    ``axis`` on: between transposes, or reshapes, that make it the last."""
    value, last = node.input(0), node.input(0).rank - 1
    if axis == last:
        return node.result(body(value.expr, last), value.shape)
    if node.opset >= 13:
        swapped = [last if k == axis else axis if k == last else k for k in range(value.rank)]
        soft = body(node.emit(relay.transpose(value.expr, swapped)), last)
        return node.result(node.emit(relay.transpose(soft, swapped)), value.shape)
    flat = node.emit(relay.reshape(value.expr, (*value.shape[:axis], prod(value.shape[axis:]))))
    return node.result(node.emit(relay.reshape(body(flat, axis), value.shape)), value.shape)


def batch_normalization(node: OnnxNode) -> Value:
    """With constant statistics: one product and one sum per channel."""
    value = node.input(0)
    scale, bias, mean, variance = (node.data(index) for index in range(1, 5))
    factor = (scale / np.sqrt(variance + np.float32(node.attr("epsilon", 1e-5)))).astype(np.float32)
    shape = (-1, *(1,) * (value.rank - 2))
    terms = [relay.const(each.reshape(shape)) for each in (factor, (bias - mean * factor).astype(np.float32))]
    scaled = node.emit(relay.multiply(value.expr, terms[0]))
    return node.result(node.emit(relay.add(scaled, terms[1])), value.shape)


def layer_normalization(node: OnnxNode) -> Value:
    """Over all axes from ``axis`` on, as rows."""
    value = node.input(0)
    axis = node.attr("axis", -1) % value.rank
    if axis == value.rank - 1:
        scale = node.input(1)
        bias = node.input(2) if node.has(2) else constant(np.zeros(scale.shape, np.float32))
        return node.result(_layer_norm(node, value.expr, scale, bias), value.shape)
    size = prod(value.shape[axis:])
    factors = [np.broadcast_to(node.data(1), value.shape[axis:]).reshape(size)]
    factors.append(np.broadcast_to(node.data(2), value.shape[axis:]).reshape(size) if node.has(2) else 0 * factors[0])
    rows = node.emit(relay.reshape(value.expr, (*value.shape[:axis], size)))
    normal = _layer_norm(node, rows, *(constant(np.asarray(each, np.float32)) for each in factors))
    return node.result(node.emit(relay.reshape(normal, value.shape)), value.shape)


def _layer_norm(node: OnnxNode, rows: Any, scale: Value, bias: Value) -> Any:
    epsilon = node.attr("epsilon", 1e-5)
    return node.emit(relay.nn.layer_norm(rows, scale.expr, bias.expr, axis=-1, epsilon=epsilon))


def _reduce(function: Any) -> Converter:
    def convert(node: OnnxNode) -> Value:
        value, keep = node.input(0), bool(node.attr("keepdims", 1))
        axes = reduced_axes(node)
        expr = node.emit(function(value.expr, axis=axes, keepdims=keep))
        kept = [(1 if axis in axes else size) for axis, size in enumerate(value.shape) if keep or axis not in axes]
        return node.result(expr, tuple(kept))

    return convert


def _places(function: Any) -> Converter:
    """ArgMax, ArgMin: Relay's are int32, ONNX's int64."""

    def convert(node: OnnxNode) -> Value:
        value, keep = node.input(0), bool(node.attr("keepdims", 1))
        axis, last = node.attr("axis", 0) % value.rank, bool(node.attr("select_last_index", 0))
        found = node.emit(function(value.expr, axis=(axis,), keepdims=keep, select_last_index=last))
        kept = [1 if k == axis else size for k, size in enumerate(value.shape) if keep or k != axis]
        return node.result(node.emit(relay.cast(found, "int64")), tuple(kept), "int64")

    return convert


def reduced_axes(node: OnnxNode) -> tuple[int, ...]:
    """Axes are an attribute, then (opset 13 to 18) a constant input; none means all."""
    axes = node.data(1).tolist() if node.has(1) else node.attr("axes", [])
    rank = node.input(0).rank
    if not axes and node.attr("noop_with_empty_axes", 0):
        raise node.refuse("axes must name an axis", "none with noop_with_empty_axes=1", "Remove the node")
    return tuple(sorted(axis % rank for axis in axes)) or tuple(range(rank))


def where(node: OnnxNode) -> Value:
    condition, left, right = (node.input(index) for index in range(3))
    expr = node.emit(relay.where(condition.expr, left.expr, right.expr))
    return node.result(expr, np.broadcast_shapes(condition.shape, left.shape, right.shape), left.dtype)


CONVERTERS: dict[str, Converter] = {
    "Add": _binary(relay.add),
    "Sub": _binary(relay.subtract),
    "Mul": _binary(relay.multiply),
    "Div": _binary(relay.divide),
    "Sum": _variadic(relay.add),
    "Mean": mean,
    "Max": _variadic(relay.maximum),
    "Min": _variadic(relay.minimum),
    "Equal": _compare(relay.equal),
    "Less": _compare(relay.less),
    "Greater": _compare(relay.greater),
    "LessOrEqual": _compare(relay.less_equal),
    "GreaterOrEqual": _compare(relay.greater_equal),
    "And": _compare(relay.logical_and),
    "Or": _compare(relay.logical_or),
    "Xor": _compare(relay.logical_xor),
    "Not": _unary(relay.logical_not),
    "Where": where,
    "Sqrt": _unary(relay.sqrt),
    "Exp": _unary(relay.exp),
    "Log": _unary(relay.log),
    "Erf": _unary(relay.erf),
    "Tanh": _unary(relay.tanh),
    "Neg": _unary(relay.negative),
    "Abs": _unary(relay.abs),
    "Sigmoid": _unary(relay.sigmoid),
    "Relu": _unary(relay.nn.relu),
    "LeakyRelu": leaky_relu,
    "Clip": clip,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": hard_swish,
    "Softmax": softmax,
    "BatchNormalization": batch_normalization,
    "LayerNormalization": layer_normalization,
    "ReduceMean": _reduce(relay.mean),
    "ReduceSum": _reduce(relay.sum),
    "ReduceMax": _reduce(relay.max),
    "ReduceMin": _reduce(relay.min),
    "ArgMax": _places(relay.argmax),
    "ArgMin": _places(relay.argmin),
}
