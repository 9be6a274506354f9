"""ONNX → Relay for float matrix products and convolution; the shape work of matrix products is shared with int8."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.relay_passes.onnx_elementwise import Converter
from epu.relay_passes.onnx_node import OnnxNode, Shape, Value, constant
from epu.relay_passes.onnx_pooling import Window, spatial_function, window_of
from epu.relay_passes.tvm_relay import relay

Product = Callable[[Any, Any], Any]  # (a expression, transposed b expression) -> product expression
CONV_TRANSPOSE = {1: relay.nn.conv1d_transpose, 2: relay.nn.conv2d_transpose}
CONV = {1: relay.nn.conv1d, 2: relay.nn.conv2d, 3: relay.nn.conv3d}


def matmul_shape(node: OnnxNode, a: Shape, b: Shape) -> Shape:
    """Shape of ``a @ b`` by NumPy's rules."""
    full_a, full_b = ((1, *a) if len(a) == 1 else a), ((*b, 1) if len(b) == 1 else b)
    if full_a[-1] != full_b[-2]:
        raise node.refuse("the inner sizes of the product must be equal", f"{a} and {b}", "Repair the model")
    batch = np.broadcast_shapes(full_a[:-2], full_b[:-2])
    rows = (full_a[-2],) if len(a) > 1 else ()
    cols = (full_b[-1],) if len(b) > 1 else ()
    return (*batch, *rows, *cols)


def matmul_expr(node: OnnxNode, a: Value, b: Value, dense: Product, batch: Product) -> tuple[Any, Shape]:
    """``a @ b`` as one dense (2-D b) or batch product between reshapes, all with the node's span."""
    out = matmul_shape(node, a.shape, b.shape)
    b = _reshaped(node, b, (*b.shape, 1)) if b.rank == 1 else b
    a = _reshaped(node, a, (1, a.shape[0])) if a.rank == 1 else a
    if b.rank == 2:
        flat = _reshaped(node, a, (prod(a.shape[:-1]), a.shape[-1]))
        return _to_shape(node, dense(flat.expr, transposed(node, b).expr), (flat.shape[0], b.shape[1]), out)
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a3, b3 = (_stacked(node, value, stack) for value in (a, b))
    product = batch(a3.expr, transposed(node, b3).expr)
    return _to_shape(node, product, (a3.shape[0], a3.shape[1], b3.shape[2]), out)


def transposed(node: OnnxNode, value: Value) -> Value:
    """``value`` with its last two axes exchanged; a constant is exchanged now."""
    perm = (*range(value.rank - 2), value.rank - 1, value.rank - 2)
    if value.data is not None:
        return value.map_data(value.data.transpose(perm))
    shape = tuple(value.shape[axis] for axis in perm)
    return Value(shape, value.dtype, node.emit(relay.transpose(value.expr, perm)))


def _reshaped(node: OnnxNode, value: Value, shape: Shape) -> Value:
    if shape == value.shape:
        return value
    if value.data is not None:
        return value.map_data(value.data.reshape(shape))
    return Value(shape, value.dtype, node.emit(relay.reshape(value.expr, shape)))


def _stacked(node: OnnxNode, value: Value, stack: Shape) -> Value:
    full = (*stack, *value.shape[-2:])
    if full != value.shape and prod(full) != prod(value.shape):
        value = _broadcast(node, value, full)
    return _reshaped(node, value, (prod(stack), *value.shape[-2:]))


def _broadcast(node: OnnxNode, value: Value, shape: Shape) -> Value:
    if value.data is not None:
        return value.map_data(np.broadcast_to(value.data, shape))
    return Value(shape, value.dtype, node.emit(relay.broadcast_to(value.expr, shape)))


def _to_shape(node: OnnxNode, expr: Any, shape: Shape, out: Shape) -> tuple[Any, Shape]:
    return (expr if shape == out else node.emit(relay.reshape(expr, out))), out


def matmul(node: OnnxNode) -> Value:
    def dense(a: Any, b: Any) -> Any:
        return node.emit(relay.nn.dense(a, b))

    def batch(a: Any, b: Any) -> Any:
        return node.emit(relay.nn.batch_matmul(a, b))

    return node.result(*matmul_expr(node, node.input(0), node.input(1), dense, batch))


def product_along(node: OnnxNode, value: Any, shape: Shape, axis: int, weights: NDArray[np.float32]) -> Any:
    """Each row of ``value`` along an axis times constant ``weights`` [out, size]."""
    last = len(shape) - 1
    swapped = [last if k == axis else axis if k == last else k for k in range(len(shape))]
    turned = [shape[k] for k in swapped]
    rows = value if axis == last else node.emit(relay.transpose(value, swapped))
    flat = node.emit(relay.reshape(rows, (prod(turned[:-1]), turned[-1])))
    product = node.emit(relay.nn.dense(flat, relay.const(weights)))
    result = node.emit(relay.reshape(product, (*turned[:-1], weights.shape[0])))
    return result if axis == last else node.emit(relay.transpose(result, swapped))


def cumulative_sum(node: OnnxNode) -> Value:
    """As a product with a triangle of ones."""
    value = node.input(0)
    axis = int(node.data(1).reshape(-1)[0]) % value.rank
    if value.dtype != "float32":
        raise node.refuse("the input must be float32", value.dtype, "Cast it")
    ones = np.tril(np.ones((value.shape[axis],) * 2, np.float32), -1 if node.attr("exclusive", 0) else 0)
    weights = ones.T.copy() if node.attr("reverse", 0) else ones
    return node.result(product_along(node, value.expr, value.shape, axis, weights), value.shape)


def gemm(node: OnnxNode) -> Value:
    """alpha * A' * B' + beta * C, the products with alpha and beta left out where they are 1."""
    a, weight = gemm_operands(node, node.input(0), node.input(1))
    expr = _scaled(node, node.emit(relay.nn.dense(a.expr, weight.expr)), node.attr("alpha", 1.0))
    if node.has(2):
        addend = node.input(2)
        beta = node.attr("beta", 1.0)
        known = constant((addend.data * np.float32(beta)), addend.name) if addend.data is not None else None
        term = known.expr if known else _scaled(node, addend.expr, beta)
        codes = beta == 1.0 and addend.is_known and not known and addend.expr.op.name == "qnn.dequantize"
        per_column = (known is not None or codes) and prod(addend.shape[:-1]) == 1
        expr = node.emit(relay.add(expr, term) if per_column else relay.add(term, expr))  # the former is a bias
    return node.result(expr, (a.shape[0], weight.shape[0]))


def gemm_operands(node: OnnxNode, a: Value, b: Value) -> tuple[Value, Value]:
    """A as [M, K] and B as [N, K], whatever transA and transB say."""
    a = transposed(node, a) if node.attr("transA", 0) else a
    b = b if node.attr("transB", 0) else transposed(node, b)
    if a.shape[1] != b.shape[1]:
        found = f"{a.shape[1]} and {b.shape[1]}"
        raise node.refuse("the inner sizes of the product must be equal", found, "Repair the model")
    return a, b


def _scaled(node: OnnxNode, expr: Any, factor: float) -> Any:
    return expr if factor == 1.0 else node.emit(relay.multiply(expr, relay.const(np.float32(factor))))


def conv_window(node: OnnxNode, data: Value, weight: Value) -> Window:
    """Window of a convolution; checks the channel counts."""
    group = node.attr("group", 1)
    if data.shape[1] != weight.shape[1] * group:
        found = f"{data.shape[1]} and {weight.shape[1]} x {group}"
        raise node.refuse("input channels must equal weight channels x group", found, "Repair the model")
    return window_of(node, data.shape[2:], weight.shape[2:])


def conv_attributes(node: OnnxNode, weight: Value, window: Window) -> dict[str, Any]:
    """Keyword arguments of Relay's convolutions."""
    return {
        "kernel_size": window.kernel,
        "channels": weight.shape[0],
        "strides": window.strides,
        "padding": window.pads,
        "dilation": window.dilations,
        "groups": node.attr("group", 1),
    }


def conv(node: OnnxNode) -> Value:
    data, weight = node.input(0), node.input(1)
    window = conv_window(node, data, weight)
    function = spatial_function(node, CONV)
    expr = node.emit(function(data.expr, weight.expr, **conv_attributes(node, weight, window)))
    if node.has(2):
        expr = node.emit(relay.nn.bias_add(expr, node.input(2).expr))
    return node.result(expr, (data.shape[0], weight.shape[0], *window.out_shape(data.shape[2:])))


def conv_transpose(node: OnnxNode) -> Value:
    data, weight = node.input(0), node.input(1)
    group = node.attr("group", 1)
    window, extra = transposed_window(node, data.shape[2:], weight.shape[2:])
    function = spatial_function(node, CONV_TRANSPOSE)
    layout = {1: "IOW", 2: "IOHW"}[len(window.kernel)]
    attributes = conv_attributes(node, weight, window) | {"channels": weight.shape[1] * group}
    expr = node.emit(function(data.expr, weight.expr, kernel_layout=layout, output_padding=extra, **attributes))
    if node.has(2):
        expr = node.emit(relay.nn.bias_add(expr, node.input(2).expr))
    spatial = [_grown(window, size, axis) + extra[axis] for axis, size in enumerate(data.shape[2:])]
    return node.result(expr, (data.shape[0], weight.shape[1] * group, *spatial))


def transposed_window(node: OnnxNode, spatial: Shape, kernel: Shape) -> tuple[Window, Shape]:
    """Window and output padding of a transposed convolution, ``auto_pad`` and ``output_shape`` resolved to pads."""
    rank = len(spatial)
    extra = tuple(node.attr("output_padding", (0,) * rank))
    mode, wanted = node.text("auto_pad", "NOTSET"), tuple(node.attr("output_shape", ()))[-rank:]
    window = window_of(replace(node, attributes={**node.attributes, "auto_pad": "NOTSET"}), spatial, kernel)
    if mode == "NOTSET" and not wanted:
        return window, extra
    window = replace(window, pads=(0,) * 2 * rank)
    if mode == "VALID" and not wanted:
        return window, extra
    wanted = wanted or tuple(size * stride for size, stride in zip(spatial, window.strides))
    totals = [_grown(window, size, axis) + extra[axis] - wanted[axis] for axis, size in enumerate(spatial)]
    extra = tuple(more + max(-total, 0) for more, total in zip(extra, totals))  # beyond all windows: the bias alone
    small, large = [max(total, 0) // 2 for total in totals], [-(-max(total, 0) // 2) for total in totals]
    return replace(window, pads=tuple(small + large if mode == "SAME_UPPER" else large + small)), extra


def _grown(window: Window, size: int, axis: int) -> int:
    reach = window.dilations[axis] * (window.kernel[axis] - 1) + 1
    return (size - 1) * window.strides[axis] + reach - window.pads[axis] - window.pads[axis + len(window.kernel)]


CONVERTERS: dict[str, Converter] = {
    "MatMul": matmul,
    "Gemm": gemm,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "CumSum": cumulative_sum,
}
