"""Compile-time numbers: multipliers, shifts and tables of docs/arithmetic.md, from exact rationals."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Real = int | float | Fraction
SHIFT_LIMIT = 63
DECIMAL_DIGITS = 60


def nearest(value: Fraction) -> int:
    """The nearest integer, half to even."""
    return round(value)


def fixed_constant(value: Real, frac: int) -> int:
    """``value`` in Q``frac``, half to even."""
    return nearest(Fraction(value) * Fraction(2) ** frac)


def parts(scale: Real) -> tuple[int, int]:
    """``(m, e)`` with ``float32 scale == m * 2**e`` and ``2**23 <= m < 2**24`` (sign kept, zero gives zero)."""
    mantissa, exponent = np.frexp(np.float64(np.float32(scale)))
    return int(mantissa * 2**24), int(exponent) - 24


def multiplier(scale: Real) -> tuple[int, int]:
    """``(m, shift)`` of a float32 scale; both 0 where the shift exceeds the machine's and every product rounds to 0."""
    mantissa, exponent = parts(scale)
    return (mantissa, -exponent) if -exponent <= SHIFT_LIMIT else (0, 0)


def multipliers(scales: Sequence[Any] | NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``multiplier`` of each scale, as two int64 vectors."""
    pairs = [multiplier(scale) for scale in scales]
    return np.array([m for m, _ in pairs], np.int64), np.array([shift for _, shift in pairs], np.int64)


def inverse(value: Real) -> tuple[int, int]:
    """``(R, k)`` with ``R = nearest(2**k / value)`` and ``2**31 <= R < 2**32``, for ``value > 0``."""
    exact = Fraction(value)
    k = 32 + exact.numerator.bit_length() - exact.denominator.bit_length()
    while nearest(Fraction(2) ** k / exact) >= 1 << 32:
        k -= 1
    while nearest(Fraction(2) ** k / exact) < 1 << 31:
        k += 1
    return nearest(Fraction(2) ** k / exact), k


def ceil_log2(count: int) -> int:
    """The least p with ``2**p >= count``."""
    return (count - 1).bit_length()


def is_power_of_two(count: int) -> bool:
    return count & (count - 1) == 0


def exp(value: Fraction) -> Fraction:
    """e**value to 60 decimal digits."""
    with localcontext() as context:
        context.prec = DECIMAL_DIGITS
        return Fraction((Decimal(value.numerator) / Decimal(value.denominator)).exp())


def logistic(value: Fraction) -> Fraction:
    """1 / (1 + e**-value) to 60 decimal digits."""
    return 1 / (1 + exp(-value))


def exp2_table(entries: int, frac: int) -> NDArray[np.int32]:
    """``2**(-i / entries)`` in Q``frac``."""
    with localcontext() as context:
        context.prec = DECIMAL_DIGITS
        powers = [Fraction(Decimal(2) ** (-Decimal(i) / entries)) for i in range(entries)]
    return np.array([fixed_constant(power, frac) for power in powers], np.int32)


def exp_table(scale: float, frac: int) -> NDArray[np.int32]:
    """``exp(-d * scale)`` in Q``frac`` for d in 0..255, the table of SoftmaxInt8."""
    step = Fraction(float(np.float32(scale)))
    return np.array([fixed_constant(exp(-d * step), frac) for d in range(256)], np.int32)


def integer_range(dtype: str) -> tuple[int, int]:
    """Lowest and highest value of an integer type."""
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def clip_to(dtype: str, value: int) -> int:
    """A compile-time integer clipped to the range of a type."""
    low, high = integer_range(dtype)
    return min(max(value, low), high)
