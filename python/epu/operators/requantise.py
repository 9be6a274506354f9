"""The end of every operator that accumulates int8 products: an int8 result, or a fixed-point one."""

from __future__ import annotations

import numpy as np

from epu.constants import SHIFT_LIMIT, multipliers
from epu.graph import Fixed, Graph, Node, Quantized
from epu.lanes import round24, rshr, saturate
from epu.operators.row import (
    ORT,
    Array,
    Ints,
    Limit,
    Values,
    along,
    frac,
    input_tensor,
    output_tensor,
    quantized,
    value,
)


def requantise(node: Node, graph: Graph, acc: Ints, scale: Array, axis: int, rounding: str) -> Array:
    """``acc * scale`` to the type of output 0; ``scale``: float32, one or one per slice along ``axis``."""
    kind = quantized(output_tensor(node, graph))
    factor, shift = (along(each, axis, acc.ndim) for each in multipliers(np.atleast_1d(scale)))
    if rounding == ORT:
        product = round24(round24(acc) * factor)
    else:
        product = acc * factor
    return saturate(rshr(product, shift) + kind.zero_point[0], kind.dtype)


def fixed_multipliers(scales: Array, bits: int) -> tuple[Ints, Ints]:
    """``(m, shift)`` with ``acc * scale * 2**bits == acc * m >> shift``; both 0 where all products round to 0."""
    factor, shift = multipliers(np.ravel(scales))
    shift = shift - bits
    return np.where(shift > SHIFT_LIMIT, 0, factor), np.where(shift > SHIFT_LIMIT, 0, shift)


def finished(node: Node, graph: Graph, values: Values, acc: Ints, scale: Array, axis: int, rounding: str) -> Array:
    """The output from the sums of products; input 2 is an int32 bias in units of the sums, or one of fixed point, which a
    fixed-point output takes up after its own rounding."""
    bias, out = input_tensor(node, graph, 2), output_tensor(node, graph)
    added = None if bias is None else along(value(node, values, 2).reshape(-1), axis, acc.ndim)
    if added is not None and bias is not None and not isinstance(bias.type, Fixed):
        acc = acc + added
    if not isinstance(out.type, Fixed):
        return requantise(node, graph, acc, scale, axis, rounding)
    factor, shift = (along(each, axis, acc.ndim) for each in fixed_multipliers(scale, frac(out)))
    found = rshr(acc * factor, shift)
    if added is not None and bias is not None and isinstance(bias.type, Fixed):
        found = found + rshr(added, frac(bias) - frac(out))
    return saturate(found, "int32")


def check_result(node: Node, graph: Graph) -> str | None:
    kind = output_tensor(node, graph).type
    wrong = isinstance(kind, Quantized) and kind.dtype not in ("int8", "uint8")
    return kind.dtype if isinstance(kind, Quantized) and wrong else None


def check_bias(node: Node, graph: Graph) -> str | None:
    bias, out = input_tensor(node, graph, 2), output_tensor(node, graph)
    is_float = bias is not None and not isinstance(bias.type, Quantized)
    return f"float '{bias.name}'" if bias is not None and is_float and isinstance(out.type, Quantized) else None


RESULT = Limit("the output is quantized int8 or uint8, or float", check_result)
BIAS = Limit("the bias of a quantized output is int32", check_bias)
