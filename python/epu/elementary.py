"""Reciprocal, inverse square root and exponential in integers (docs/arithmetic.md), on int64 lanes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from epu.constants import exp2_table, fixed_constant
from epu.lanes import bits, mulr, rshr, saturate

Ints = NDArray[np.int64]

ONE = 1 << 30  # 1.0 in Q30
INT32_MAX = (1 << 31) - 1
UINT32_MAX = (1 << 32) - 1
NEWTON_STEPS = 3

RECIPROCAL_SEED = (fixed_constant(Fraction(48, 17), 30), fixed_constant(Fraction(32, 17), 30))  # within 1/17
ROOT_SEED = tuple(
    fixed_constant(Fraction(text), frac) for text, frac in (("2.67083539", 30), ("3.28535628", 29), ("1.63856749", 29))
)  # minimax quadratic of v**-0.5 on [1/4, 1], within 0.0241

EXP_TABLE_BITS = 8
EXP_INTEGER_BIT = 26  # the exponent in Q26
EXP_TABLE = exp2_table(1 << EXP_TABLE_BITS, 30)
LOG2_E = 1549082005  # log2(e) in Q30
LN_2 = 1488522236  # ln(2) in Q31


def reciprocal(d: Ints) -> Ints:
    """``2**62 / d`` for ``2**31 <= d < 2**32``: Q30 of 1 / (d * 2**-32) below 2**31; relative error <= 2**-30."""
    r = RECIPROCAL_SEED[0] - mulr(RECIPROCAL_SEED[1], d, 32)
    for _ in range(NEWTON_STEPS):
        r = mulr(r, (1 << 32) - mulr(r, d, 31), 31)
    return np.minimum(r, INT32_MAX)


def inverse_sqrt(v: Ints) -> Ints:
    """Q30 of 1 / sqrt(v * 2**-32) for ``2**30 <= v < 2**32``; relative error <= 2**-30; at most 2**31 - 1."""
    c0, c1, c2 = ROOT_SEED
    r = np.minimum(c0 - mulr(c1 - mulr(c2, v, 32), v, 31), INT32_MAX)
    for _ in range(NEWTON_STEPS):
        square = mulr(mulr(r, v, 32), r, 30)
        r = np.minimum(mulr(r, 3 * ONE - square, 31), INT32_MAX)
    return r


def normal_sqrt(w: Ints) -> tuple[Ints, Ints, Ints]:
    """``(k, V, R)`` of a non-negative int64: ``w ~ V * 2**(2k - 32)`` and ``R = inverse_sqrt(V)``."""
    k = (bits(w) + 1) >> 1
    v = np.minimum(rshr(w, 2 * k - 32), UINT32_MAX)
    return k, v, inverse_sqrt(v)


def exp_negative(d: Ints, frac: int) -> Ints:
    """Q30 of exp(-d * 2**-frac) for ``0 <= d < 2**31``; absolute error <= 10 units."""
    t = saturate(mulr(d, LOG2_E, frac + 30 - EXP_INTEGER_BIT), "int32").astype(np.int64)
    n = t >> EXP_INTEGER_BIT
    i = (t >> (EXP_INTEGER_BIT - EXP_TABLE_BITS)) & ((1 << EXP_TABLE_BITS) - 1)
    g = t & ((1 << (EXP_INTEGER_BIT - EXP_TABLE_BITS)) - 1)
    u = mulr(g, LN_2, EXP_INTEGER_BIT + 31 - 30)
    w = u - mulr(u, u, 31)
    entry = EXP_TABLE[i].astype(np.int64)
    return rshr(entry - mulr(entry, w, 30), n)


def normalise_sum(total: Ints) -> tuple[Ints, Ints]:
    """``(L, R)``: bits of a positive int64 and the reciprocal of its 32 leading bits."""
    length = bits(total)
    leading = np.where(length >= 32, total >> np.maximum(length - 32, 0), total << np.maximum(32 - length, 0))
    return length, reciprocal(leading)
