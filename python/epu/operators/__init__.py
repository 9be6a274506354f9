"""The table of operators: one row per op name, gathered from one file each."""

from __future__ import annotations

from collections.abc import Iterable

from epu.operators import (
    activation,
    arg_extreme,
    binary,
    conv,
    conv_transpose,
    custom,
    element_functions,
    layer_norm,
    layer_norm_parts,
    layout,
    masks,
    matmul,
    pooling,
    qlinear_add,
    qlinear_conv,
    qlinear_matmul,
    qlinear_mul,
    qlinear_tables,
    quantize,
    quantized_unary,
    reduce_mean,
    reductions,
    resize,
    selection,
    smooth_functions,
    softmax,
    softmax_parts,
    sqrt,
)
from epu.operators.row import Interval, Limit, Operator

FILES = (
    *(qlinear_conv, qlinear_matmul, qlinear_add, qlinear_mul, qlinear_tables, quantized_unary),
    *(matmul, quantize, binary, sqrt, activation, smooth_functions, reduce_mean, pooling, softmax, layer_norm, layout),
    *(reductions, arg_extreme, softmax_parts, layer_norm_parts, element_functions, masks),
    *(conv, conv_transpose, selection, resize, custom),
)


def table(rows: Iterable[Operator]) -> dict[str, Operator]:
    """Rows by name; a second row of the same name is our own bug."""
    found: dict[str, Operator] = {}
    for row in rows:
        assert row.name not in found, f"two rows for operator {row.name}"
        found[row.name] = row
    return found


OPERATORS = table(row for each in FILES for row in each.ROWS)

__all__ = ["OPERATORS", "Interval", "Limit", "Operator"]
