"""docs/supported_ops.md, written from the operator rows."""

from __future__ import annotations

from epu.operators import OPERATORS, Operator

TITLE = """# Operators that run on the EPU

Written by `make docs` from the rows in `python/epu/operators/`. A node outside a limit is refused with the sentence below,
the value found and what to do. The integer arithmetic of each operator: [arithmetic.md](arithmetic.md).
Operators that no ONNX file has (LayerNormDecomposed, QuantizedUnary, SoftmaxInt8) are groups that the compiler recognises.

| operator | kernel family | limits |
|---|---|---|
"""


def supported_ops_page() -> str:
    """The page: one line per operator, sorted by name."""
    return TITLE + "".join(table_line(row) for _, row in sorted(OPERATORS.items()))


def table_line(row: Operator) -> str:
    return f"| {row.name} | {row.family} | {'; '.join(limit.sentence for limit in row.limits) or 'none'} |\n"
