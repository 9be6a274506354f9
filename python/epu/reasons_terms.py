"""Integers times float32 scales: what the float tensors of a quantised chain are, without any rounding.

``DQ → Conv`` holds integer sums in units of the product of two float32 scales; both are kept apart, so that a quotient
by the output's scale can be had as a fraction, and as the float32 factors of docs/arithmetic.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Array = NDArray[Any]
Index = tuple[NDArray[np.intp], ...]
ONE = np.ones(1)


@dataclass(frozen=True)
class Part:
    """``ints * product(factors) / count``.

    ``ints`` are exact in float64. ``factors`` are float32 scales and broadcast to it, as does ``count``, the elements of a
    mean. ``combined``: the operator rounds the factors to one float32 number. ``magnitude`` gives the sum of the products'
    absolute values, ``depth`` how many products a float32 sum adds (0: it adds integers).
    """

    ints: Reals
    factors: tuple[Array, ...]
    magnitude: Callable[[], Reals]
    count: Array = ONE
    combined: bool = False
    depth: int = 0

    @property
    def reals(self) -> Reals:
        """float64, within a few units of 2**-53."""
        return np.asarray(self.ints * self._unit / self.count, np.float64)

    @property
    def largest(self) -> Reals:
        """What float32 errors are relative to."""
        return np.asarray(self.magnitude() * self._unit / self.count, np.float64)

    def quotient_factor(self, scale: Array) -> Array:
        """The float32 number by which the operator multiplies ``ints``: ``f32(f32(f0 * f1) / f32(scale * count))``."""
        unit = self.factors[0]
        for factor in self.factors[1:]:
            unit = np.asarray(unit * factor, np.float32)
        return np.asarray(unit / np.asarray(scale * np.asarray(self.count, np.float32), np.float32), np.float32)

    def fraction(self, index: tuple[int, ...]) -> Fraction:
        """The exact value of one element."""
        factors = [Fraction(float(element(each, self.ints.shape, index))) for each in self.factors]
        return prod(factors, start=self.whole(index)) / Fraction(float(element(self.count, self.ints.shape, index)))

    def whole(self, index: tuple[int, ...]) -> Fraction:
        """The integer of one element."""
        return Fraction(float(self.ints[index]))

    @property
    def _unit(self) -> Reals:
        found = np.ones((), np.float64)
        for factor in self.factors:
            found = found * np.asarray(factor, np.float64)
        return np.asarray(found)


Terms = tuple[Part, ...]


def element(array: Array, shape: tuple[int, ...], index: tuple[int, ...]) -> Any:
    """One element of what broadcasts to ``shape``."""
    return np.broadcast_to(array, shape)[index]


def dequantized(codes: Array, scale: Array, zero: Array, axis: int) -> Terms:
    """DequantizeLinear; ``axis`` counts where there are several scales."""
    shape = [1] * codes.ndim
    if scale.size > 1:
        shape[axis] = -1
    ints = codes.astype(np.float64) - np.asarray(zero, np.float64).reshape(shape if zero.size > 1 else ())
    factor = np.asarray(scale, np.float32).reshape(shape if scale.size > 1 else ())
    return (Part(ints, (factor,), lambda: np.abs(ints)),)


def reals_of(value: Terms | Array) -> Array:
    """float64 of terms; arrays as they are."""
    if isinstance(value, tuple):
        return np.asarray(sum(part.reals for part in value))
    return value


def single(value: Any) -> Part | None:
    """The part of a value that has one only."""
    return value[0] if isinstance(value, tuple) and len(value) == 1 else None


def mapped(part: Part, function: Callable[[Reals], Reals]) -> Terms:
    """A function that commutes with a positive unit: a move, a maximum, a weighted sum; factors move along."""

    def moved(array: Array) -> Array:
        if array.size == 1:
            return array.reshape(())
        return function(np.broadcast_to(array, part.ints.shape).astype(np.float64)).astype(array.dtype)

    factors = tuple(moved(each) for each in part.factors)
    return (
        replace(
            part,
            ints=function(part.ints),
            factors=factors,
            count=moved(part.count),
            magnitude=lambda: function(part.magnitude()),
        ),
    )


def multiplied(
    a: Part,
    b: Part,
    product: Callable[[Reals, Reals], Reals],
    b_factor: Array,
    depth: int,
    bias: Reals | None = None,
    alpha: tuple[Array, ...] = (),
) -> Terms:
    """A bilinear operator; ``b_factor`` is the scale of ``b``, shaped for the result; ``bias`` in units of the product."""
    ints = product(a.ints, b.ints)
    if bias is not None:
        ints = ints + bias

    def magnitude() -> Reals:
        total = product(a.magnitude(), b.magnitude())
        return total if bias is None else total + np.abs(bias)

    return (Part(ints, (*alpha, *a.factors, b_factor), magnitude, combined=True, depth=depth),)


def along(values: Array, axis: int, rank: int) -> Array:
    """One value, or one per slice along ``axis``, shaped to broadcast."""
    if values.size == 1:
        return values.reshape(())
    return values.reshape([-1 if each == axis % rank else 1 for each in range(rank)])


def half_even_codes(reals: Array, scale: Array, zero: Array, axis: int, dtype: np.dtype[Any]) -> Array:
    """Codes of float64 reals, rounded half to even and clipped."""
    rank = np.ndim(reals)
    quotient = np.asarray(reals, np.float64) / along(np.asarray(scale, np.float64), axis, rank)
    codes = np.rint(quotient) + along(np.asarray(zero, np.float64), axis, rank)
    limits = np.iinfo(dtype)
    return np.clip(codes, limits.min, limits.max).astype(dtype)
