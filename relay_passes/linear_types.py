"""Types of what a linear operation reads and writes, from Relay's scales and zero points."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epu.graph import Float, Quantized
from epu.relay_passes.draft import Use, const_array, quantized, refuse
from epu.relay_passes.linear import CONVS, Linear


def operand_types(found: Linear, channel_axis: int) -> tuple[Quantized, Quantized]:
    data, weight, data_zero, weight_zero, data_scale, weight_scale = found.core.args
    left = quantized(found.root, data.dtype, data_scale, data_zero, None)
    return left, quantized(found.root, weight.dtype, weight_scale, weight_zero, channel_axis)


def out_type(found: Linear) -> Quantized | Float:
    """Output type; checks that the requantisation reads the product with the product's scale and zero point 0."""
    end = found.requantize
    assert end is not None
    if const_array(end.step, end.in_zero, "input zero point").any():
        raise refuse(end.step, "the zero point of the int32 product must be 0", "another", "Subtract it first")
    if end.out_scale is None or end.out_zero is None:
        return Float()
    return quantized(end.step, end.step.dtype, end.out_scale, end.out_zero, None)


def _product_scale(left: Quantized, right: Quantized) -> NDArray[np.float32]:
    return np.asarray(np.float32(left.scale[0]) * np.asarray(right.scale, np.float32), np.float32)


def _requantized_from(found: Linear) -> NDArray[np.float32]:
    assert found.requantize is not None
    return np.asarray(const_array(found.root, found.requantize.in_scale, "input scale"), np.float32).reshape(-1)


def check_product_scale(found: Linear, left: Quantized, right: Quantized) -> None:
    """The scale the requantisation reads must be the product's; a last bit may differ in hand-written code."""
    product, actual = _product_scale(left, right), _requantized_from(found)
    if not np.allclose(actual, product, rtol=1e-6, atol=0):
        limit = f"the input scale of qnn.requantize must be the product's scale {product.tolist()[:2]}"
        raise refuse(found.root, limit, actual.tolist()[:2], "Multiply the two input scales")


def has_alpha(found: Linear) -> bool:
    """Whether the requantisation reads the product with another scale than its own."""
    if not found.is_quantized or found.requantize is None:
        return False
    return not np.allclose(_requantized_from(found), _product_scale(*operand_types(found, 0)), rtol=1e-6, atol=0)


def alpha_of(found: Linear, left: Quantized, right: Quantized) -> float:
    product, actual = _product_scale(left, right), _requantized_from(found)
    return 1.0 if np.array_equal(actual, product) else float(np.float32(actual[0] / product[0]))


def int_bias(found: Linear, left: Quantized, right: Quantized) -> list[Use]:
    if found.bias is None:
        return []
    data = const_array(found.root, found.bias, "bias").reshape(-1)
    channels = found.core.shape[1 if found.core.op in CONVS else -1]
    data = np.ascontiguousarray(np.broadcast_to(data, (channels,)))
    scale = tuple(map(float, _product_scale(left, right)))
    axis = 0 if len(scale) > 1 else None
    return [Use(found.bias, Quantized("int32", scale, (0,) * len(scale), axis), data)]


def float_bias(found: Linear) -> list[Use]:
    return [] if found.bias is None else [Use(found.bias)]
