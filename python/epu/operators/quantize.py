"""QuantizeLinear and DequantizeLinear: the doors between int8 and fixed point."""

from __future__ import annotations

import numpy as np

from epu.constants import SHIFT_LIMIT, inverse, multiplier, parts
from epu.graph import Fixed, Graph, Node, Quantized
from epu.lanes import round24, rshr, saturate
from epu.operators.row import (
    CODES,
    FIXED,
    INT8_OUTPUT,
    ORT,
    Array,
    Interval,
    Ints,
    Limit,
    Operator,
    Values,
    along,
    centred,
    frac,
    output_tensor,
    quantized,
    quantized_interval,
    required,
    value,
    zero_point,
)


def per_channel(kind: Quantized, pairs: list[tuple[int, int]], rank: int) -> tuple[Ints, Ints]:
    """Multipliers and shifts, shaped to broadcast along the type's axis."""
    columns = (np.array(column, np.int64) for column in zip(*pairs))
    axis = 0 if kind.axis is None else kind.axis
    factor, shift = (along(column, axis, rank) if kind.axis is not None else column[0] for column in columns)
    return factor, shift


def quantize_multiplier(scale: float, fraction_bits: int) -> tuple[int, int]:
    """``(R, shift)`` with ``X * 2**-fraction_bits / scale ~ X * R >> shift``; zeros where all quotients do."""
    mantissa, exponent = parts(scale)
    factor, k = inverse(mantissa)
    shift = k + exponent + fraction_bits
    return (factor, shift) if shift <= SHIFT_LIMIT else (0, 0)


def dequantize_multiplier(scale: float, fraction_bits: int) -> tuple[int, int]:
    """``(m, shift)`` with ``q * scale * 2**fraction_bits == q * m >> shift``."""
    factor, shift = multiplier(scale)
    return (factor, shift - fraction_bits) if factor else (0, 0)


def round_product(raw: Ints, factor: Ints, rounding: str) -> Ints:
    return round24(round24(raw) * factor) if rounding == ORT else raw * factor


def quantize_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    raw, kind = value(node, values, 0), quantized(output_tensor(node, graph))
    fraction_bits = frac(required(node, graph, 0))
    pairs = [quantize_multiplier(scale, fraction_bits) for scale in kind.scale]
    factor, shift = per_channel(kind, pairs, raw.ndim)
    quotient = rshr(round_product(raw, factor, rounding), shift)
    return [saturate(quotient + zero_point(kind, raw.ndim), kind.dtype)]


def dequantize_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    raw, kind = centred(node, graph, values, 0), quantized(required(node, graph, 0))
    pairs = [dequantize_multiplier(scale, frac(output_tensor(node, graph))) for scale in kind.scale]
    factor, shift = per_channel(kind, pairs, raw.ndim)
    return [saturate(rshr(round_product(raw, factor, rounding), shift), "int32")]


def dequantize_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    """All codes; an int32's lowest one alone would cost a fraction bit, and is held without it."""
    kind = quantized(required(node, graph, 0))
    low, high = quantized_interval(kind)
    if kind.dtype == "int32":
        low = max(low, -high) if not any(kind.zero_point) else low
    return {node.outputs[0]: (low, high)}


def check_fixed_input(node: Node, graph: Graph) -> str | None:
    kind = required(node, graph, 0).type
    return kind.dtype if hasattr(kind, "dtype") else None


def check_quantized_input(node: Node, graph: Graph) -> str | None:
    kind = required(node, graph, 0).type
    return None if isinstance(kind, Quantized) else type(kind).__name__.lower()


def check_coarse(node: Node, graph: Graph) -> str | None:
    """A scale far below the input's resolution would need a left shift of a 63-bit product."""
    source, kind = required(node, graph, 0).type, output_tensor(node, graph).type
    if not isinstance(source, Fixed) or not isinstance(kind, Quantized):
        return None
    shifts = [inverse(parts(scale)[0])[1] + parts(scale)[1] + source.frac for scale in kind.scale]
    return None if min(shifts) >= 0 else f"scale {min(kind.scale)} of an input with {source.frac} fraction bits"


ROWS = (
    Operator(
        name="QuantizeLinear",
        family="elementwise",
        limits=(
            Limit("the input is float", check_fixed_input, FIXED),
            INT8_OUTPUT,
            Limit("the scale is at least 2**-31 of the input's range", check_coarse),
        ),
        reference=quantize_reference,
    ),
    Operator(
        name="DequantizeLinear",
        family="elementwise",
        limits=(Limit("the input is quantized", check_quantized_input, (*CODES, "int32")),),
        reference=dequantize_reference,
        intervals=dequantize_intervals,
    ),
)
