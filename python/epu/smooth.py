"""Smooth functions as 64 polynomials of degree 5 (docs/arithmetic.md, smooth): coefficients, and the integer recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import cos, pi

import numpy as np
from numpy.typing import NDArray

from epu.constants import DECIMAL_DIGITS, SHIFT_LIMIT, clip_to, fixed_constant, nearest
from epu.lanes import mulr, rshr, saturate
from epu.real_functions import decimal

Ints = NDArray[np.int64]
Real = Callable[[Decimal], Decimal]

SEGMENT_BITS, POSITION_BITS, DEGREE = 6, 31, 5
SEGMENTS, PLACE_BITS = 1 << SEGMENT_BITS, POSITION_BITS - SEGMENT_BITS  # a place within its segment is Q25
MIDDLE = 1 << (PLACE_BITS - 1)
ODD, EVEN = "odd", "even"
INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class Smooth:
    """``y = part(x) + offset``, plus ``max(x, 0)`` where ``ramp``.

    ``part`` is smooth between ``ends``, and constant beyond them to 2**-32. With a symmetry it is known for x >= 0 only.
    """

    part: Real
    ends: tuple[float, float]
    symmetry: str = ""
    ramp: bool = False
    offset: Fraction = Fraction(0)


@dataclass(frozen=True)
class Polynomials:
    """Compile-time constants of one smooth function of inputs with some fraction bits. ``frac``: of the coefficients."""

    low: int
    high: int
    factor: int
    shift: int
    tables: tuple[NDArray[np.int32], ...]  # C0 to C5
    frac: int


@lru_cache(maxsize=256)
def polynomials(part: Real, ends: tuple[float, float], input_frac: int, symmetry: str = "") -> Polynomials:
    """Raw window, position multiplier and coefficient tables of ``part`` between ``ends`` on int32 inputs."""
    low, high = (clip_to("int32", fixed_constant(Fraction(end), input_frac)) for end in ends)
    low, high = (min(low, INT32_MAX - 1), high) if not symmetry else (max(low, 0), high)
    high = max(high, low + 1)
    factor, shift = position_multiplier(high - low)
    unit = Fraction(2) ** -input_frac
    reals = coefficients(part, low * unit, (high - low) * unit)
    largest = max(abs(each) for row in reals for each in row)
    frac = coefficient_frac(largest)
    columns = (tuple(fixed_constant(Fraction(each), frac) for each in column) for column in zip(*reals))
    return Polynomials(low, high, factor, shift, tuple(np.array(column, np.int32) for column in columns), frac)


def coefficient_frac(largest: Decimal) -> int:
    """Fraction bits with which coefficients up to ``largest`` stay within 2**30."""
    frac = 30
    while Fraction(largest) * Fraction(2) ** frac > 1 << 30:
        frac -= 1
    while largest and Fraction(largest) * Fraction(2) ** (frac + 1) <= 1 << 30 and frac < SHIFT_LIMIT - 5:
        frac += 1
    return frac


def position_multiplier(width: int) -> tuple[int, int]:
    """``(R, n)`` with ``R * 2**-n ~ 2**31 / width`` and ``2**30 <= R < 2**31``."""
    n = width.bit_length() - 1
    factor = nearest(Fraction(1 << (POSITION_BITS + n), width))
    while factor >= 1 << POSITION_BITS:
        n -= 1
        factor = nearest(Fraction(2) ** (POSITION_BITS + n) / width)
    return factor, n


def coefficients(part: Real, low: Fraction, width: Fraction) -> list[list[Decimal]]:
    """For each segment the coefficients of t**0 to t**5, t from -1/2 to 1/2, through the Chebyshev points."""
    with localcontext() as context:
        context.prec = DECIMAL_DIGITS
        step, start = decimal(width / SEGMENTS), decimal(low)
        nodes, weights = interpolation()
        rows = []
        for segment in range(SEGMENTS):
            values = [part(start + step * (segment + Decimal("0.5") + node)) for node in nodes]
            rows.append([sum((w * v for w, v in zip(row, values)), Decimal(0)) for row in weights])
        return rows


@lru_cache(maxsize=1)
def interpolation() -> tuple[list[Decimal], list[list[Decimal]]]:
    """Chebyshev points of [-1/2, 1/2], and the matrix from values there to coefficients."""
    count = DEGREE + 1
    nodes = [Fraction(cos(pi * (2 * k + 1) / (2 * count))) / 2 for k in range(count)]
    columns = []
    for k, node in enumerate(nodes):  # Lagrange's polynomial of each node
        poly = [Fraction(1)]
        for other in nodes[:k] + nodes[k + 1 :]:
            low, high = [-other * each for each in poly] + [Fraction(0)], [Fraction(0), *poly]
            poly = [(a + b) / (node - other) for a, b in zip(low, high)]
        columns.append(poly)
    return [decimal(node) for node in nodes], [[decimal(each) for each in row] for row in zip(*columns)]


def evaluate(p: Polynomials, raw: Ints) -> Ints:
    """The polynomial part of each raw input, with ``p.frac`` fraction bits."""
    window = np.minimum(np.maximum(raw, p.low), p.high) - p.low
    position = np.minimum(mulr(window, p.factor, p.shift), INT32_MAX)
    segment, place = position >> PLACE_BITS, (position & ((1 << PLACE_BITS) - 1)) - MIDDLE
    tables = [table.astype(np.int64) for table in p.tables]
    y = tables[DEGREE][segment]
    for k in reversed(range(DEGREE)):
        y = mulr(y, place, PLACE_BITS) + tables[k][segment]
    return y


def polynomials_of(f: Smooth, input_frac: int, ends: tuple[float, float] | None = None) -> Polynomials:
    """Of a function, or of the function between narrower ends."""
    return polynomials(f.part, ends or f.ends, input_frac, f.symmetry)


def smooth_raw(f: Smooth, p: Polynomials, raw: Ints, input_frac: int, output_frac: int) -> NDArray[np.int32]:
    """The function in the output's fraction bits."""
    y = evaluate(p, np.abs(raw) if f.symmetry else raw)
    y = np.where(raw < 0, -y, y) if f.symmetry == ODD else y
    total = rshr(y, p.frac - output_frac) + fixed_constant(f.offset, output_frac)
    if f.ramp:
        total = total + rshr(np.maximum(raw, 0), input_frac - output_frac)
    return saturate(total, "int32")
