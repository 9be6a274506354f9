"""Quantised ONNX operators as what they stand for: DequantizeLinear, a float operator, QuantizeLinear.

ONNX Runtime defines them with one float32 factor for all scales (docs/arithmetic.md), its sums are integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from scipy.special import expit

from epu import exact_windows as windows
from epu import reasons_linear as linear
from epu.reasons_terms import Array, Reals, Terms, dequantized, reals_of, single

Operands = Sequence[Any]


@dataclass(frozen=True)
class Coded:
    """A real value that a node rounds to codes: ``value / scale + zero``.

    ``value``: integers times scales, or float64. ``scale`` and ``zero``: one, or one per slice along ``axis``.
    """

    value: Terms | Array
    scale: Array
    zero: Array
    axis: int = 0


def coded(node: onnx.NodeProto, operands: Operands, opset: int) -> Coded | None:
    """The value that a quantised node rounds; None for an operator that is not known here."""
    rule = RULES.get(node.op_type)
    return rule(node, operands, opset) if rule is not None else None


def _quantize(node: onnx.NodeProto, operands: Operands, opset: int) -> Coded:
    x, scale, *zero = operands
    axis = windows.attributes(node).get("axis", 1)
    points = np.zeros(1, np.int64) if not zero or zero[0] is None else np.asarray(zero[0])
    return Coded(x, np.atleast_1d(scale), np.atleast_1d(points), axis)


def _output(value: Terms | Array | None, scale: Any, zero: Any) -> Coded | None:
    return None if value is None else Coded(_integer_sums(value), np.atleast_1d(scale), np.atleast_1d(zero))


def _integer_sums(value: Terms | Array) -> Terms | Array:
    """ORT adds integers here."""
    return tuple(replace(part, depth=0) for part in value) if isinstance(value, tuple) else value


def _real(operands: Operands, first: int, axis: int = 0) -> Terms:
    """Operands (codes, scale, zero point) from ``first``."""
    codes, scale, zero = operands[first : first + 3]
    points = np.zeros(1) if zero is None else np.atleast_1d(zero)
    return dequantized(codes, np.atleast_1d(scale), points, axis)


def _conv(node: onnx.NodeProto, operands: Operands, opset: int) -> Coded | None:
    bias = operands[8] if len(operands) > 8 else None
    inner = linear.plain_node("Conv", node)
    value = linear.conv(inner, [_real(operands, 0), _real(operands, 3), bias], opset)
    return _output(value, operands[6], operands[7])


def _matmul(node: onnx.NodeProto, operands: Operands, opset: int) -> Coded | None:
    b = _real(operands, 3, operands[3].ndim - 1)
    return _output(linear.matmul(node, [_real(operands, 0), b], opset), operands[6], operands[7])


def _gemm(node: onnx.NodeProto, operands: Operands, opset: int) -> Coded | None:
    axis = 0 if windows.attributes(node).get("transB", 0) else 1
    if len(operands) < 9 or operands[7] is None:
        return None
    value = linear.gemm(node, [_real(operands, 0), _real(operands, 3, axis), operands[6]], opset)
    return _output(value, operands[7], operands[8])


def _two(rule: Callable[[onnx.NodeProto, Operands, int], Terms | None]) -> Callable[..., Coded | None]:
    def coded_two(node: onnx.NodeProto, operands: Operands, opset: int) -> Coded | None:
        value = rule(node, [_real(operands, 0), _real(operands, 3)], opset)
        return _output(value, operands[6], operands[7])

    return coded_two


def _one(function: Callable[[onnx.NodeProto, Terms, int], Terms | Array | None]) -> Callable[..., Coded | None]:
    def coded_one(node: onnx.NodeProto, operands: Operands, opset: int) -> Coded | None:
        return _output(function(node, _real(operands, 0), opset), operands[3], operands[4])

    return coded_one


def _average(node: onnx.NodeProto, x: Terms, opset: int) -> Terms | None:
    if windows.attributes(node).get("channels_last", 0):
        return None
    return linear.average(node, [x], opset)


def _sigmoid(node: onnx.NodeProto, x: Terms, opset: int) -> Reals:
    return np.asarray(expit(reals_of(x)))


def _leaky_relu(node: onnx.NodeProto, x: Terms, opset: int) -> Terms | None:
    """Exact: a negative code has one factor more."""
    part, alpha = single(x), np.float32(windows.attributes(node).get("alpha", 0.01))
    if part is None:
        return None
    slope: NDArray[np.float32] = np.where(part.ints >= 0, np.float32(1), alpha).astype(np.float32)
    return (replace(part, factors=(*part.factors, slope)),)


def _concat(node: onnx.NodeProto, operands: Operands, opset: int) -> Coded | None:
    pieces = [_real(operands, first) for first in range(2, len(operands), 3)]
    return _output(linear.concat(node, pieces, opset), operands[0], operands[1])


RULES: dict[str, Callable[..., Coded | None]] = {
    "QGemm": _gemm,
    "QLinearAdd": _two(linear.add),
    "QLinearAveragePool": _one(_average),
    "QLinearConcat": _concat,
    "QLinearConv": _conv,
    "QLinearGlobalAveragePool": _one(_average),
    "QLinearLeakyRelu": _one(_leaky_relu),
    "QLinearMatMul": _matmul,
    "QLinearMul": _two(linear.mul),
    "QLinearSigmoid": _one(_sigmoid),
    "QuantizeLinear": _quantize,
}
