"""The notation of docs/arithmetic.md on int64 lanes: nothing but calls of the fixed-point module."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.simulator.fixed_point import count_leading_zeros, narrow, round24, shift_right_round, sum24

Ints = NDArray[np.int64]

LANE_NAME = {"int8": "i8", "uint8": "u8", "int32": "i32"}


def rshr(x: Ints, n: Any) -> Ints:
    """Shift right, round half to even; ``n <= 0`` shifts left."""
    with np.errstate(over="ignore"):  # 2**63 wraps on purpose where n is 63
        return shift_right_round(x, n)


def mulr(a: Any, b: Any, n: Any) -> Ints:
    """``rshr(a * b, n)``."""
    return rshr(np.multiply(a, b, dtype=np.int64), n)


def saturate(x: Ints, dtype: str) -> NDArray[Any]:
    """``x`` clipped to the range of ``dtype``, in that type."""
    out = np.empty(np.shape(x), dtype)
    narrow(out, np.array(x, np.int64), LANE_NAME[dtype], saturate=True)
    return out


def bits(x: Ints) -> Ints:
    """Significant bits of a non-negative integer: 64 - clz."""
    return np.int64(64) - count_leading_zeros(x)


__all__ = ["bits", "mulr", "round24", "rshr", "saturate", "sum24"]
