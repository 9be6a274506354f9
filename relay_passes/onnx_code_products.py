"""ONNX → Relay QNN for convolutions and matrix products of codes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from epu.relay_passes.onnx_elementwise import Converter
from epu.relay_passes.onnx_linear import conv_attributes, conv_window, gemm_operands, matmul_expr
from epu.relay_passes.onnx_node import OnnxNode, Value
from epu.relay_passes.onnx_scales import Scale, core, real, requantized, scale_at
from epu.relay_passes.tvm_relay import relay

qnn = relay.qnn.op


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
    acc = core(qnn.conv2d, node, scales, data.expr, weight.expr, **attributes)
    if node.has(8):
        acc = node.emit(relay.nn.bias_add(acc, node.input(8).expr))
    expr = requantized(node, acc, scales[0].scale * scales[1].scale, out, 1)
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
        return requantized(node, core(qnn.dense, node, scales, x, w, units=units), product, out, 1)

    def batch(x: Any, y: Any) -> Any:
        return requantized(node, core(qnn.batch_matmul, node, scales, x, y), product, out, -1)

    return node.result(*matmul_expr(node, a, b, dense, batch), out.dtype)


def qgemm(node: OnnxNode) -> Value:
    """alpha * A' * B' + C with int32 C in units of a scale * b scale; alpha goes into the requantisation."""
    scales = scale_at(node, 1), scale_at(node, 4)
    a, weight = gemm_operands(node, node.input(0), node.input(3))
    acc = core(qnn.dense, node, scales, a.expr, weight.expr, units=weight.shape[0])
    if node.has(6):
        _check_column_bias(node, weight.shape[0])
        acc = node.emit(relay.add(acc, node.input(6).expr))
    product = scales[0].scale * scales[1].scale.reshape(-1) * np.float32(node.attr("alpha", 1.0))
    shape = a.shape[0], weight.shape[0]
    if not node.has(7):
        return node.result(real(node, acc, product, 1), shape, "float32")
    out = scale_at(node, 7)
    return node.result(requantized(node, acc, product, out, 1), shape, out.dtype)


def _check_column_bias(node: OnnxNode, columns: int) -> None:
    shape = node.data(6).shape
    if node.data(6).size not in (1, columns):
        raise node.refuse("C must be one value or one per column", f"shape {list(shape)}", "Add it after the node")


def _unscaled(node: OnnxNode, index: int, dtype: str) -> Scale:
    """The zero point at ``index`` (0 where absent) of an operand whose codes are taken as they are."""
    zero_point = node.data(index) if node.has(index) else np.zeros((), dtype)
    return Scale(np.ones(zero_point.shape, np.float32), zero_point, dtype)


def matmul_integer(node: OnnxNode) -> Value:
    """a * b of codes less their zero points, an int32."""
    a, b = node.input(0), node.input(1)
    scales = _unscaled(node, 2, a.dtype), _unscaled(node, 3, b.dtype)
    _check_one_zero(node, scales[0])

    def dense(x: Any, w: Any) -> Any:
        return core(qnn.dense, node, scales, x, w, units=b.shape[-1] if b.rank > 1 else 1)

    def batch(x: Any, y: Any) -> Any:
        return core(qnn.batch_matmul, node, scales, x, y)

    return node.result(*matmul_expr(node, a, b, dense, batch), "int32")


def matmul_integer_to_float(node: OnnxNode) -> Value:
    """a * b as reals, plus a float bias."""
    a, b = node.input(0), node.input(1)
    scales = Scale(node.data(2), _unscaled(node, 4, a.dtype).zero_point, a.dtype), _unscaled(node, 5, b.dtype)
    scales = scales[0], Scale(node.data(3), scales[1].zero_point, b.dtype)
    _check_one_zero(node, scales[0])
    product = scales[0].scale * scales[1].scale.reshape(-1)

    def dense(x: Any, w: Any) -> Any:
        return real(node, core(qnn.dense, node, scales, x, w, units=b.shape[-1]), product, 1)

    def batch(x: Any, y: Any) -> Any:
        return real(node, core(qnn.batch_matmul, node, scales, x, y), product, -1)

    expr, shape = matmul_expr(node, a, b, dense, batch)
    expr = node.emit(relay.add(expr, node.input(6).expr)) if node.has(6) else expr
    return node.result(expr, shape, "float32")


def _check_one_zero(node: OnnxNode, scale: Scale) -> None:
    if scale.zero_point.size > 1:
        raise node.refuse("a must have one zero point", scale.zero_point.size, "Quantise it per tensor")


def conv_integer(node: OnnxNode) -> Value:
    """Convolution of codes less their zero points, an int32."""
    data, weight = node.input(0), node.input(1)
    if data.rank != 4:
        raise node.refuse("the input must have 4 axes", data.rank, "Reshape it to [N, C, H, W]")
    window = conv_window(node, data, weight)
    scales = _unscaled(node, 2, data.dtype), _unscaled(node, 3, weight.dtype)
    acc = core(qnn.conv2d, node, scales, data.expr, weight.expr, **conv_attributes(node, weight, window))
    return node.result(acc, (data.shape[0], weight.shape[0], *window.out_shape(data.shape[2:])), "int32")


CONVERTERS: dict[str, Converter] = {
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QGemm": qgemm,
    "MatMulInteger": matmul_integer,
    "MatMulIntegerToFloat": matmul_integer_to_float,
    "ConvInteger": conv_integer,
}
