"""How the axes of a kernel are cut into sequencer steps, PE rows, PE columns and local loops."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from epu.simulator.machine import Machine


@dataclass(frozen=True)
class Cut:
    """Factors of one axis, outermost first; their product is the axis extent."""

    step: int = 1  # sequencer
    row: int = 1
    col: int = 1
    ring: int = 1
    local: int = 1

    @property
    def inner(self) -> int:
        """Elements of the axis that one instruction covers."""
        return self.row * self.col * self.ring * self.local


Tiling = dict[str, Cut]


def divisor(extent: int, limit: int) -> int:
    """Largest divisor of ``extent`` that is at most ``limit``."""
    return next(d for d in range(min(extent, max(limit, 1)), 0, -1) if extent % d == 0)


def spread(axes: dict[str, int], machine: Machine, budget: int, pack: int = 4) -> Tiling:
    """Spread axes (outermost first) over the array: whole words per PE, then columns, then rows, then more per PE.

    ``budget`` bounds the elements per PE.
    """
    left = dict(axes)
    cuts: dict[str, dict[str, int]] = {name: {"row": 1, "col": 1, "local": 1} for name in axes}

    def take(part: str, name: str, limit: int) -> int:
        factor = divisor(left[name], limit)
        left[name] //= factor
        cuts[name][part] *= factor
        return factor

    names = list(reversed(axes))
    word = take("local", names[0], min(pack, budget)) if names else 1
    for part, limit in (("col", machine.cols), ("row", machine.rows), ("local", budget // word)):
        for name in names:
            limit //= take(part, name, limit)
    return {name: Cut(step=left[name], **cuts[name]) for name in axes}


def rows_over_array(rows: str, row_count: int, inner: str, length: int, machine: Machine, budget: int) -> Tiling:
    """Rows of ``length`` elements: each row over neighbouring columns (last column digit), rows over the rest.

    Takes as few columns per row as keep at most ``budget`` elements in one PE, then the busiest array, then as many rows
    per PE as the budget still allows.
    """
    choices = [g for g in range(1, machine.cols + 1) if length % g == 0]
    fitting = [g for g in choices if length // g <= budget] or choices[-1:]
    group = next((g for g in fitting if length // g % 4 == 0), fitting[0])  # whole bus words of bytes
    width = machine.cols // group
    row = max(range(1, machine.rows + 1), key=lambda r: r * divisor(row_count // r, width) if row_count % r == 0 else 0)
    col = divisor(row_count // row, width)
    local = divisor(row_count // (row * col), max(1, budget // (length // group)))
    return {
        rows: Cut(step=row_count // (row * col * local), row=row, col=col, local=local),
        inner: Cut(col=group, local=length // group),
    }


def per_pe(tiling: Tiling) -> int:
    """Local elements of the product of all axes."""
    return prod(cut.local for cut in tiling.values())
