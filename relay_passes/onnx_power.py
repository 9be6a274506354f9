"""ONNX Pow by constant exponents → Relay: powers that the EPU has, and products and quotients of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from epu.relay_passes.onnx_elementwise import Converter
from epu.relay_passes.onnx_node import OnnxNode, Value, constant
from epu.relay_passes.tvm_relay import relay

DIRECT = (0.5, 2.0, 3.0, 4.0)  # the operator table's own
LARGEST, MOST_EXPONENTS = 16.0, 8  # of a chain of products; of a tensor of exponents


def power(node: OnnxNode) -> Value:
    """One exponent, or a tensor of a few different ones: each its own power, chosen by constant masks.

    Other exponents stay Relay's power, which runs on the host.
    """
    base = node.input(0)
    exponents = node.data(1).astype(np.float32)
    different = sorted({float(each) for each in exponents.ravel()})
    direct = exponents.size == 1 and different[0] in DIRECT
    if direct or base.dtype != "float32" or len(different) > MOST_EXPONENTS or not all(map(_is_spelt, different)):
        exponent = constant(node.data(1).astype(base.dtype), node.input(1).name)
        expr = node.emit(relay.power(base.expr, exponent.expr))
        return node.result(expr, np.broadcast_shapes(base.shape, exponent.shape))
    shape = np.broadcast_shapes(base.shape, exponents.shape)
    found = _power(node, base.expr, different[0])
    for each in different[1:]:
        mask = relay.const(np.broadcast_to(exponents == each, exponents.shape))
        found = node.emit(relay.where(mask, _power(node, base.expr, each), found))
    if shape != base.shape and len(different) == 1:
        found = node.emit(relay.broadcast_to(found, shape))
    return node.result(found, shape)


def _is_spelt(exponent: float) -> bool:
    """Whether an exponent is a multiple of a half of moderate size."""
    return abs(exponent) <= LARGEST and exponent * 2 == round(exponent * 2)


def _power(node: OnnxNode, x: Any, exponent: float) -> Any:
    """``x`` to one exponent."""
    if exponent == 0:
        return node.emit(relay.add(node.emit(relay.multiply(x, _number(0))), _number(1)))
    if exponent < 0:
        return node.emit(relay.divide(_number(1), _power(node, x, -exponent)))
    if exponent == 1:
        return node.emit(relay.copy(x))
    if exponent in DIRECT:
        return node.emit(relay.power(x, _number(exponent)))
    first = 0.5 if exponent != int(exponent) else min(4.0, exponent - 1)
    rest = exponent - first
    return node.emit(relay.multiply(_power(node, x, first), x if rest == 1 else _power(node, x, rest)))


def _number(value: float) -> Any:
    return relay.const(np.float32(value))


CONVERTERS: dict[str, Converter] = {"Pow": power}
