"""ONNX → Relay QNN for QuantizeLinear, DequantizeLinear and the QLinear operators that are no products."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from epu.relay_passes.onnx_code_products import CONVERTERS as PRODUCTS
from epu.relay_passes.onnx_elementwise import Converter
from epu.relay_passes.onnx_layout import concatenated
from epu.relay_passes.onnx_node import OnnxNode, Value
from epu.relay_passes.onnx_pooling import average_pool_expr, global_average_expr
from epu.relay_passes.onnx_scales import Scale, dequantized, quantized, scale_at
from epu.relay_passes.tvm_relay import relay

qnn = relay.qnn.op


def _axis(node: OnnxNode, value: Value, scale: Scale) -> int:
    return node.attr("axis", 1) % value.rank if scale.scale.size > 1 and value.rank else -1


def _require_one_axis(node: OnnxNode, scale: Scale) -> None:
    if node.attr("block_size", 0) or scale.scale.size > max(scale.scale.shape, default=1):
        shape = list(scale.scale.shape)
        raise node.refuse("there must be one scale, or one per channel", f"shape {shape}", "Requantise the tensor")
    if scale.dtype not in ("int8", "uint8", "int32"):
        raise node.refuse("codes must be int8, uint8 or int32", scale.dtype, "Quantise to eight bits")


def quantize_linear(node: OnnxNode) -> Value:
    value, scale = node.input(0), scale_at(node, 1)
    _require_one_axis(node, scale)
    return node.result(quantized(node, value.expr, scale, _axis(node, value, scale)), value.shape, scale.dtype)


def dequantize_linear(node: OnnxNode) -> Value:
    value, scale = node.input(0), scale_at(node, 1)
    _require_one_axis(node, scale)
    if value.dtype not in ("int8", "uint8", "int32"):
        raise node.refuse("the input must be int8, uint8 or int32", value.dtype, "Quantise to eight bits")
    return node.result(dequantized(node, value, scale, _axis(node, value, scale)), value.shape, "float32")


def _qlinear_binary(function: Any, node: OnnxNode) -> Value:
    a, b, out = node.input(0), node.input(3), scale_at(node, 6)
    parameters = (*scale_at(node, 1).exprs, *scale_at(node, 4).exprs, *out.exprs)
    expr = node.emit(function(a.expr, b.expr, *parameters))
    return node.result(expr, np.broadcast_shapes(a.shape, b.shape))


def qlinear_concat(node: OnnxNode) -> Value:
    out, parts = scale_at(node, 0), range(2, len(node.inputs), 3)
    values, scales = [node.input(index) for index in parts], [scale_at(node, index + 1) for index in parts]
    axis = node.attr("axis") % values[0].rank
    exprs = relay.Tuple([value.expr for value in values])
    in_scales, in_zeros = zip(*(scale.exprs for scale in scales))
    call = qnn.concatenate(exprs, relay.Tuple(in_scales), relay.Tuple(in_zeros), *out.exprs, axis)
    return node.result(node.emit(call), concatenated(values, axis), out.dtype)


def _check_channels_first(node: OnnxNode) -> None:
    if node.attr("channels_last", 0):
        raise node.refuse("channels_last must be 0", 1, "Quantise the model without the NHWC transformer")


def qlinear_average_pool(node: OnnxNode) -> Value:
    _check_channels_first(node)
    real = dequantized(node, node.input(0), scale_at(node, 1))
    expr, shape = average_pool_expr(node, real)
    return node.result(quantized(node, expr, scale_at(node, 3)), shape)


def qlinear_global_average_pool(node: OnnxNode) -> Value:
    _check_channels_first(node)
    real = dequantized(node, node.input(0), scale_at(node, 1))
    expr, shape = global_average_expr(node, real)
    return node.result(quantized(node, expr, scale_at(node, 3)), shape)


def _qlinear_unary(function: Any, node: OnnxNode) -> Value:
    real = dequantized(node, node.input(0), scale_at(node, 1))
    expr = quantized(node, node.emit(function(node, real)), scale_at(node, 3))
    return node.result(expr, node.input(0).shape)


def _sigmoid(_: OnnxNode, expr: Any) -> Any:
    return relay.sigmoid(expr)


def _leaky_relu(node: OnnxNode, expr: Any) -> Any:
    return relay.nn.leaky_relu(expr, node.attr("alpha", 0.01))


def qlinear_softmax(node: OnnxNode) -> Value:
    if node.attr("opset", 13) < 13 and node.attr("axis", -1) % node.input(0).rank != node.input(0).rank - 1:
        raise node.refuse(
            "before opset 13 softmax must run along the last axis", node.attr("axis"), "Transpose around it"
        )
    return _qlinear_unary(lambda each, real: relay.nn.softmax(real, each.attr("axis", -1)), node)


def qlinear_where(node: OnnxNode) -> Value:
    """Where of dequantised values, quantised again."""
    condition, x, y = node.input(0), node.input(1), node.input(4)
    chosen = relay.where(condition.expr, *(dequantized(node, v, scale_at(node, at)) for v, at in ((x, 2), (y, 5))))
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    return node.result(quantized(node, node.emit(chosen), scale_at(node, 7)), shape, x.dtype)


def dynamic(node: OnnxNode) -> Value:
    remedy = "Quantise statically (epu quantize), with calibration data"
    raise node.refuse("scales must be known when the model is compiled", "scales that depend on the data", remedy)


CONVERTERS: dict[str, Converter] = {
    **PRODUCTS,
    "QuantizeLinear": quantize_linear,
    "DequantizeLinear": dequantize_linear,
    "QLinearAdd": partial(_qlinear_binary, qnn.add),
    "QLinearMul": partial(_qlinear_binary, qnn.mul),
    "QLinearConcat": qlinear_concat,
    "QLinearAveragePool": qlinear_average_pool,
    "QLinearGlobalAveragePool": qlinear_global_average_pool,
    "QLinearSigmoid": partial(_qlinear_unary, _sigmoid),
    "QLinearLeakyRelu": partial(_qlinear_unary, _leaky_relu),
    "QLinearSoftmax": qlinear_softmax,
    "QLinearWhere": qlinear_where,
    **dict.fromkeys(("DynamicQuantizeLinear", "DynamicQuantizeMatMul"), dynamic),
}
