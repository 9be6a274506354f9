"""The table of operators: one row per op name, gathered from one file each."""

from __future__ import annotations

from collections.abc import Iterable

from epu.operators import (
    layer_norm,
    qlinear_add,
    qlinear_matmul,
    quantize,
    quantized_unary,
    reduce_mean,
    softmax,
)
from epu.operators.row import Interval, Limit, Operator

FILES = (qlinear_matmul, qlinear_add, quantize, reduce_mean, softmax, layer_norm, quantized_unary)


def table(rows: Iterable[Operator]) -> dict[str, Operator]:
    """Rows by name; a second row of the same name is our own bug."""
    found: dict[str, Operator] = {}
    for row in rows:
        assert row.name not in found, f"two rows for operator {row.name}"
        found[row.name] = row
    return found


OPERATORS = table(row for each in FILES for row in each.ROWS)

__all__ = ["OPERATORS", "Interval", "Limit", "Operator"]
