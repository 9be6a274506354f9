"""The last step of every int8 kernel, as TE: accumulator → int8 (docs/arithmetic.md, Requantise)."""

from __future__ import annotations

from typing import Any

from . import intrinsics


def requantise(value: Any, factor: Any, shift: Any, zero_point: Any, rounding: str, dtype: str = "int8") -> Any:
    """``clip(round_half_even(value * factor * 2**-shift) + zero_point)``; "ort" rounds as float32 does."""
    product = intrinsics.mulr if rounding == "exact" else intrinsics.mulrf
    return intrinsics.sat(product(value, factor, shift, zero_point), dtype)
