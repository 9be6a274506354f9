"""ONNX → Relay QNN for QuantizeLinear, DequantizeLinear, the QLinear operators and QGemm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.relay_passes.onnx_elementwise import Converter
from epu.relay_passes.onnx_layout import concatenated
from epu.relay_passes.onnx_linear import conv_attributes, conv_window, gemm_operands, matmul_expr
from epu.relay_passes.onnx_node import OnnxNode, Value
from epu.relay_passes.onnx_pooling import average_pool_expr, global_average_expr
from epu.relay_passes.tvm_relay import relay

qnn = relay.qnn.op


@dataclass(frozen=True)
class Scale:
    """Scale and zero point of one operand, as in the ONNX file."""

    scale: NDArray[Any]
    zero_point: NDArray[Any]
    dtype: str

    @property
    def exprs(self) -> tuple[Any, Any]:
        """Relay constants, zero point first (the order of qnn.conv2d and qnn.dense comes by name)."""
        return _scalar_or_vector(self.scale, "float32"), _scalar_or_vector(self.zero_point, "int32")


def _scalar_or_vector(data: NDArray[Any], dtype: str) -> Any:
    array = np.asarray(data, dtype)
    return relay.const(array.reshape(()) if array.size == 1 else array.reshape(-1), dtype)


def scale_at(node: OnnxNode, index: int) -> Scale:
    """Scale at input ``index`` and zero point at the next; an absent zero point is 0 of uint8."""
    scale = node.data(index)
    zero_point = node.data(index + 1) if node.has(index + 1) else np.zeros((), np.uint8)
    if scale.size > 1 and not zero_point.any():
        zero_point = np.zeros((), zero_point.dtype)
    return Scale(scale, zero_point, str(zero_point.dtype))


def _axis(node: OnnxNode, value: Value, scale: Scale) -> int:
    return node.attr("axis", 1) % value.rank if scale.scale.size > 1 and value.rank else -1


def _dequantized(node: OnnxNode, value: Value, scale: Scale, axis: int = -1) -> Any:
    return node.emit(qnn.dequantize(value.expr, *scale.exprs, axis=axis))


def _quantized(node: OnnxNode, expr: Any, scale: Scale, axis: int = -1) -> Any:
    return node.emit(qnn.quantize(expr, *scale.exprs, axis=axis, out_dtype=scale.dtype))


def _require_one_axis(node: OnnxNode, scale: Scale) -> None:
    if node.attr("block_size", 0) or scale.scale.size > max(scale.scale.shape, default=1):
        shape = list(scale.scale.shape)
        raise node.refuse("there must be one scale, or one per channel", f"shape {shape}", "Requantise the tensor")
    if scale.dtype not in ("int8", "uint8", "int32"):
        raise node.refuse("codes must be int8, uint8 or int32", scale.dtype, "Quantise to eight bits")


def quantize_linear(node: OnnxNode) -> Value:
    value, scale = node.input(0), scale_at(node, 1)
    _require_one_axis(node, scale)
    return node.result(_quantized(node, value.expr, scale, _axis(node, value, scale)), value.shape, scale.dtype)


def dequantize_linear(node: OnnxNode) -> Value:
    value, scale = node.input(0), scale_at(node, 1)
    _require_one_axis(node, scale)
    if value.dtype not in ("int8", "uint8", "int32"):
        raise node.refuse("the input must be int8, uint8 or int32", value.dtype, "Quantise to eight bits")
    return node.result(_dequantized(node, value, scale, _axis(node, value, scale)), value.shape, "float32")


def _requantized(node: OnnxNode, acc: Any, product: NDArray[Any], out: Scale, axis: int) -> Any:
    scale, zero_point = out.exprs
    source = _scalar_or_vector(product, "float32")
    zero = relay.const(0, "int32")
    return node.emit(qnn.requantize(acc, source, zero, scale, zero_point, axis=axis, out_dtype=out.dtype))


def _core(function: Any, node: OnnxNode, scales: tuple[Scale, Scale], a: Any, b: Any, **attributes: Any) -> Any:
    (a_scale, a_zero), (b_scale, b_zero) = scales[0].exprs, scales[1].exprs
    return node.emit(function(a, b, a_zero, b_zero, a_scale, b_scale, **attributes))


def qlinear_conv(node: OnnxNode) -> Value:
    """One spatial axis is the last of two, between reshapes."""
    data, weight = node.input(0), node.input(3)
    if data.rank not in (3, 4):
        raise node.refuse("the input must have 3 or 4 axes", data.rank, "Reshape it to [N, C, H, W]")
    if data.rank == 3:
        return _qlinear_conv_1d(node)
    scales, out = (scale_at(node, 1), scale_at(node, 4)), scale_at(node, 6)
    window = conv_window(node, data, weight)
    attributes = conv_attributes(node, weight, window)
    acc = _core(qnn.conv2d, node, scales, data.expr, weight.expr, **attributes)
    if node.has(8):
        acc = node.emit(relay.nn.bias_add(acc, node.input(8).expr))
    expr = _requantized(node, acc, scales[0].scale * scales[1].scale, out, 1)
    return node.result(expr, (data.shape[0], weight.shape[0], *window.out_shape(data.shape[2:])), out.dtype)


def _qlinear_conv_1d(node: OnnxNode) -> Value:
    data, weight = node.input(0), node.input(3)
    wide = Value((*data.shape[:2], 1, data.shape[2]), data.dtype, None)
    wide = replace(wide, relay_expr=node.emit(relay.reshape(data.expr, wide.shape)))
    inputs = [*node.inputs]
    inputs[0], inputs[3] = wide, weight.map_data(node.data(3).reshape(*weight.shape[:2], 1, weight.shape[2]))
    attributes = {**node.attributes}
    ones = {"strides": 1, "dilations": 1, "kernel_shape": 1}
    attributes |= {name: [one, *attributes[name]] for name, one in ones.items() if name in attributes}
    if "pads" in attributes:
        before, after = attributes["pads"]
        attributes["pads"] = [0, before, 0, after]
    found = qlinear_conv(replace(node, inputs=inputs, attributes=attributes))
    shape = (*found.shape[:2], found.shape[3])
    return node.result(node.emit(relay.reshape(found.expr, shape)), shape, found.dtype)


def qlinear_matmul(node: OnnxNode) -> Value:
    a, b = node.input(0), node.input(3)
    scales, out = (scale_at(node, 1), scale_at(node, 4)), scale_at(node, 6)
    if b.rank > 2 and scales[1].scale.size > 1:
        raise node.refuse("a stack of matrices must have one scale", scales[1].scale.size, "Quantise it per tensor")
    product = scales[0].scale * scales[1].scale.reshape(-1)

    def dense(x: Any, w: Any) -> Any:
        units = b.shape[-1] if b.rank > 1 else 1
        return _requantized(node, _core(qnn.dense, node, scales, x, w, units=units), product, out, 1)

    def batch(x: Any, y: Any) -> Any:
        return _requantized(node, _core(qnn.batch_matmul, node, scales, x, y), product, out, -1)

    return node.result(*matmul_expr(node, a, b, dense, batch), out.dtype)


def qgemm(node: OnnxNode) -> Value:
    """alpha * A' * B' + C with int32 C in units of a scale * b scale; alpha goes into the requantisation."""
    if not node.has(7):
        raise node.refuse("the output must have a scale", "a float output", "Quantise the output, or use Gemm")
    scales, out = (scale_at(node, 1), scale_at(node, 4)), scale_at(node, 7)
    a, weight = gemm_operands(node, node.input(0), node.input(3))
    acc = _core(qnn.dense, node, scales, a.expr, weight.expr, units=weight.shape[0])
    if node.has(6):
        acc = node.emit(relay.add(acc, node.input(6).expr))
    product = scales[0].scale * scales[1].scale.reshape(-1) * np.float32(node.attr("alpha", 1.0))
    return node.result(_requantized(node, acc, product, out, 1), (a.shape[0], weight.shape[0]), out.dtype)


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
    real = _dequantized(node, node.input(0), scale_at(node, 1))
    expr, shape = average_pool_expr(node, real)
    return node.result(_quantized(node, expr, scale_at(node, 3)), shape)


def qlinear_global_average_pool(node: OnnxNode) -> Value:
    _check_channels_first(node)
    real = _dequantized(node, node.input(0), scale_at(node, 1))
    expr, shape = global_average_expr(node, real)
    return node.result(_quantized(node, expr, scale_at(node, 3)), shape)


def _qlinear_unary(function: Any, node: OnnxNode) -> Value:
    real = _dequantized(node, node.input(0), scale_at(node, 1))
    expr = _quantized(node, node.emit(function(node, real)), scale_at(node, 3))
    return node.result(expr, node.input(0).shape)


def _sigmoid(_: OnnxNode, expr: Any) -> Any:
    return relay.sigmoid(expr)


def _leaky_relu(node: OnnxNode, expr: Any) -> Any:
    return relay.nn.leaky_relu(expr, node.attr("alpha", 0.01))


def qlinear_softmax(node: OnnxNode) -> Value:
    remedy = "Exclude Softmax from quantisation (epu.quantize does): the EPU computes it in fixed point"
    raise node.refuse("softmax must be a float node", "QLinearSoftmax", remedy)


CONVERTERS: dict[str, Converter] = {
    "QuantizeLinear": quantize_linear,
    "DequantizeLinear": dequantize_linear,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QGemm": qgemm,
    "QLinearAdd": partial(_qlinear_binary, qnn.add),
    "QLinearMul": partial(_qlinear_binary, qnn.mul),
    "QLinearConcat": qlinear_concat,
    "QLinearAveragePool": qlinear_average_pool,
    "QLinearGlobalAveragePool": qlinear_global_average_pool,
    "QLinearSigmoid": partial(_qlinear_unary, _sigmoid),
    "QLinearLeakyRelu": partial(_qlinear_unary, _leaky_relu),
    "QLinearSoftmax": qlinear_softmax,
}
