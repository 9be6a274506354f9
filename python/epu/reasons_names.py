"""The reasons for which an element of the ISS may differ from ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Reason(IntEnum):
    """In the order of the ``Comment``."""

    TIE = 0
    FLOAT32 = 1
    SATURATION = 2
    TABLE = 3
    FIXED = 4
    CLIPPED = 5
    UPSTREAM = 6
    UNEXPLAINED = 7
    CUSTOM = 8

    @property
    def label(self) -> str:
        return LABELS[self]


LABELS = {
    Reason.TIE: "tie",
    Reason.FLOAT32: "ORT float32 rounding",
    Reason.SATURATION: "saturation",
    Reason.TABLE: "table error",
    Reason.FIXED: "fixed-point rounding",
    Reason.CLIPPED: "range clipped",
    Reason.UPSTREAM: "upstream",
    Reason.UNEXPLAINED: "unexplained",
    Reason.CUSTOM: "custom operator",
}
PROVEN = (Reason.TIE, Reason.FLOAT32)  # the ISS holds the exact result correctly rounded

Counts = Mapping[str, int]


def counted(reasons: NDArray[np.int8]) -> dict[str, int]:
    """Elements per reason, by label; reasons without elements are left out."""
    numbers = np.bincount(reasons, minlength=len(LABELS)) if reasons.size else np.zeros(len(LABELS), int)
    return {each.label: int(numbers[each]) for each in Reason if numbers[each]}


def comment(counts: Counts) -> str:
    """``tie 2, ORT float32 rounding 1``; ``-`` without a mismatch."""
    return ", ".join(f"{label} {number}" for label, number in counts.items()) or "-"


def unexplained(counts: Counts) -> int:
    return counts.get(Reason.UNEXPLAINED.label, 0)


def proven(counts: Counts) -> int:
    """Mismatches in which the ISS is proven to hold the correctly rounded exact result."""
    return sum(counts.get(each.label, 0) for each in PROVEN)
