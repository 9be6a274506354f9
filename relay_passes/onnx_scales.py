"""Scales and zero points of an ONNX node's operands, and the Relay QNN calls that take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.relay_passes.onnx_node import OnnxNode, Value
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
        return scalar_or_vector(self.scale, "float32"), scalar_or_vector(self.zero_point, "int32")


def scalar_or_vector(data: NDArray[Any], dtype: str) -> Any:
    array = np.asarray(data, dtype)
    return relay.const(array.reshape(()) if array.size == 1 else array.reshape(-1), dtype)


def scale_at(node: OnnxNode, index: int) -> Scale:
    """Scale at input ``index`` and zero point at the next; an absent zero point is 0 of uint8."""
    scale = node.data(index)
    zero_point = node.data(index + 1) if node.has(index + 1) else np.zeros((), np.uint8)
    if scale.size > 1 and not zero_point.any():
        zero_point = np.zeros((), zero_point.dtype)
    return Scale(scale, zero_point, str(zero_point.dtype))


def dequantized(node: OnnxNode, value: Value, scale: Scale, axis: int = -1) -> Any:
    return node.emit(qnn.dequantize(value.expr, *scale.exprs, axis=axis))


def quantized(node: OnnxNode, expr: Any, scale: Scale, axis: int = -1) -> Any:
    return node.emit(qnn.quantize(expr, *scale.exprs, axis=axis, out_dtype=scale.dtype))


def requantized(node: OnnxNode, acc: Any, product: NDArray[Any], out: Scale, axis: int) -> Any:
    scale, zero_point = out.exprs
    source = scalar_or_vector(product, "float32")
    zero = relay.const(0, "int32")
    return node.emit(qnn.requantize(acc, source, zero, scale, zero_point, axis=axis, out_dtype=out.dtype))


def real(node: OnnxNode, acc: Any, product: NDArray[Any], axis: int) -> Any:
    """The reals that int32 sums in units of ``product`` stand for."""
    zero = relay.const(0, "int32")
    return node.emit(qnn.dequantize(acc, scalar_or_vector(product, "float32"), zero, axis=axis))


def core(function: Any, node: OnnxNode, scales: tuple[Scale, Scale], a: Any, b: Any, **attributes: Any) -> Any:
    (a_scale, a_zero), (b_scale, b_zero) = scales[0].exprs, scales[1].exprs
    return node.emit(function(a, b, a_zero, b_zero, a_scale, b_scale, **attributes))
