"""Fixed-point arithmetic: the only place where signal data is rounded, shifted, narrowed or saturated.

Every integer function is bit-exact over its whole domain: 64-bit two's complement that wraps, round half to even.
Floating point serves only as a carrier of integers it represents exactly; each use states the bound that makes it so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epu.simulator.errors import UserError

if TYPE_CHECKING:
    from epu.simulator.program import Decode

Array = NDArray[Any]

NUMPY_DTYPE: dict[str, np.dtype[Any]] = {
    "i8": np.dtype("i1"),
    "u8": np.dtype("u1"),
    "i32": np.dtype("<i4"),
    "i64": np.dtype("<i8"),
}
RANGE: dict[str, tuple[int, int]] = {
    "i8": (-128, 127),
    "u8": (0, 255),
    "i32": (-(1 << 31), (1 << 31) - 1),
    "i64": (-(1 << 63), (1 << 63) - 1),
}
SIGNIFICANT_BITS = 24  # of float32
EXACT_FLOAT32 = 1 << 24  # integers up to here are exact in float32
EXACT_FLOAT64 = 1 << 53  # and in float64
INT64 = np.int64


def wrap_int(value: int, dtype: str = "i64") -> int:
    """The integer that the low bits of ``value`` stand for in ``dtype``."""
    low, high = RANGE[dtype]
    return (value - low) % (high - low + 1) + low


def narrow(out: Array, values: Array, dtype: str, saturate: bool) -> None:
    """Write int32/int64 ``values`` to ``out`` of ``dtype``: clipped to its range, or its low bits. May clip in place."""
    if saturate and dtype != "i64":
        low, high = RANGE[dtype]
        np.maximum(values, low, out=values)
        np.minimum(values, high, out=values)
    np.copyto(out, values, casting="unsafe")


def shift_right_round(x: Array, amount: Any) -> Array:
    """int64 ``x / 2**amount``, round half to even, amount limited to -63..63; amounts below 0 shift left and wrap."""
    s = np.clip(np.asarray(amount, INT64), -63, 63)
    if s.ndim == 0 and 1 <= s <= 62:
        return _shift_right_by_constant(x, int(s))
    if s.size and s.min() >= 1 and s.max() <= 62:
        return _shift_right_by_register(x, s)
    right = np.maximum(s, 0)
    quotient = x >> right
    remainder = x & ((INT64(1) << right) - 1)
    half = (INT64(1) << right) >> 1  # amount 63: 2**63 wraps to -2**63, its half to -2**62; hence the absolute value
    half = np.abs(half)
    up = (remainder > half) | ((remainder == half) & (quotient & 1 == 1))
    return np.where(s > 0, quotient + up, x << np.maximum(-s, 0))


def _shift_right_by_constant(x: Array, s: int) -> Array:
    """The case of one amount in 1..62: remainder + half never leaves 63 bits."""
    quotient = x >> s
    rest = quotient & 1
    rest += x & ((1 << s) - 1)
    rest += (1 << (s - 1)) - 1
    rest >>= s
    quotient += rest
    return quotient


def _shift_right_by_register(x: Array, s: Array) -> Array:
    """The case of amounts in 1..62, one for many values: the same steps in place, on the full shape."""
    quotient = np.right_shift(x, s)
    rest = quotient & 1
    rest += np.bitwise_and(x, (INT64(1) << s) - 1)
    rest += (INT64(1) << (s - 1)) - 1
    np.right_shift(rest, s, out=rest)
    quotient += rest
    return quotient


def round24(x: Array) -> Array:
    """int64 rounded to 24 significant bits, half to even (int64 -> float32 rounds so); 2**63 wraps."""
    return _from_float(x.astype(np.float32))


def _from_float(x: Array) -> Array:
    """Integral float32 of magnitude <= 2**63 to int64; 2**63 itself wraps to -2**63."""
    wrapped = np.where(x == np.float32(2.0**63), np.float32(-(2.0**63)), x)
    return wrapped.astype(INT64)


def to_int64(x: Array) -> Array:
    """Integral float32 to the nearest int64."""
    below = np.minimum(x, np.nextafter(np.float32(2.0**63), np.float32(0)))  # the largest float32 that int64 holds
    return np.where(x >= np.float32(2.0**63), np.iinfo(INT64).max, np.maximum(below, -(2.0**63)).astype(INT64))


def sum24(x: Array) -> Array:
    """int64 sum over the last axis, in order, each addend and each sum rounded to 24 significant bits as float32 does."""
    return to_int64(np.add.accumulate(x.astype(np.float32), axis=-1)[..., -1:])


def count_leading_zeros(x: Array) -> Array:
    """Leading zeros of int64 lanes read as 64-bit unsigned; 64 for 0."""
    top = (x & ~(x >> 1)).astype(np.float64)  # the bit below the top one is cleared: rounding cannot reach 2**(n+1)
    exponent = (top.view(INT64) >> 52) - 1023
    return np.where(x < 0, INT64(0), np.minimum(63 - exponent, 64))


def _limit(amount: Any) -> Any:
    return np.clip(amount, 0, 63)


def _product(a: Any, b: Any, c: Any, d: Any) -> Array:
    return shift_right_round(np.multiply(a, b), c) + (0 if d is None else d)


def _product24(a: Any, b: Any, c: Any, d: Any) -> Array:
    return shift_right_round(round24(np.multiply(round24(a), b)), c) + (0 if d is None else d)


def _truth(compare: Callable[..., Any]) -> Callable[..., Array]:
    return lambda a, b, c, d: compare(a, b).astype(INT64)


# ALU operation -> meaning on int64 lanes (a, b, c, d), unused operands None. The arrays are never modified.
ALU: dict[str, Callable[[Any, Any, Any, Any], Array]] = {
    "mov": lambda a, b, c, d: a,
    "add": lambda a, b, c, d: np.add(a, b),
    "sub": lambda a, b, c, d: np.subtract(a, b),
    "mul": lambda a, b, c, d: np.multiply(a, b),
    "and": lambda a, b, c, d: np.bitwise_and(a, b),
    "or": lambda a, b, c, d: np.bitwise_or(a, b),
    "xor": lambda a, b, c, d: np.bitwise_xor(a, b),
    "min": lambda a, b, c, d: np.minimum(a, b),
    "max": lambda a, b, c, d: np.maximum(a, b),
    "lt": _truth(np.less),
    "le": _truth(np.less_equal),
    "eq": _truth(np.equal),
    "ne": _truth(np.not_equal),
    "sel": lambda a, b, c, d: np.where(np.not_equal(a, 0), b, c),
    "shl": lambda a, b, c, d: np.left_shift(a, _limit(b)),
    "shr": lambda a, b, c, d: np.right_shift(a, _limit(b)),
    "rshr": lambda a, b, c, d: shift_right_round(a, b),
    "mulr": _product,
    "mulrf": _product24,
    "round24": lambda a, b, c, d: round24(a),
    "clz": lambda a, b, c, d: count_leading_zeros(a),
}


def exact_float_product(out: Array, a: Array, factor: Any, limit: float) -> bool:
    """``out = rint(a * factor)`` in float64; False where a product reached ``limit`` and may be inexact.

    ``factor`` is multiplier * 2**-shift. With ``limit <= 2**(53 - shift)`` the product needs at most 53 bits, so it is exact,
    and rint is the half-even rounding shift. An ``a`` beyond 2**53 also reaches the limit, unless factor is 0.
    """
    np.copyto(out, a, casting="unsafe")
    np.multiply(out, factor, out=out)
    if not _within(out, limit):
        return False
    np.rint(out, out=out)
    return True


def _within(values: Array, limit: float) -> bool:
    low, high = np.minimum.reduce(values, axis=None), np.maximum.reduce(values, axis=None)
    return bool(high < limit and low > -limit)


def rounded_float_product(out: Array, single: Array, a: Array, factor: Any, limit: float) -> bool:
    """As exact_float_product with ``a`` and the product rounded to 24 bits, which float32 ``single`` does by itself."""
    np.copyto(single, a, casting="unsafe")
    np.multiply(single, factor, out=single)
    if not _within(single, limit):
        return False
    np.rint(single, out=single)
    np.copyto(out, single)
    return True


def narrow_float(out: Array, values: Array, dtype: str, saturate: bool, surely_fits: bool = False) -> None:
    """As narrow for integral float64 below 2**53; ``surely_fits``: all are in the range of ``dtype``. May clip in place."""
    if saturate:
        low, high = RANGE[dtype]
        np.maximum(values, float(low), out=values)
        np.minimum(values, float(high), out=values)
    if saturate or surely_fits:
        np.copyto(out, values, casting="unsafe")
    else:
        np.copyto(out, values.astype(INT64), casting="unsafe")


def multiplier_of(scale: float) -> tuple[int, int]:
    """``(multiplier, shift)`` with ``float32(scale) == multiplier * 2**-shift`` and multiplier < 2**24 odd or 0."""
    mantissa, exponent = math.frexp(float(np.float32(scale)))
    multiplier, shift = int(mantissa * EXACT_FLOAT32), SIGNIFICANT_BITS - exponent
    if multiplier == 0:
        return 0, 0
    zeros = (multiplier & -multiplier).bit_length() - 1
    return multiplier >> zeros, shift - zeros


def matmul_int8(a: Array, b: Array, bound_a: int = 128, bound_b: int = 128) -> Array:
    """int32 product of float32 [M, K] x [K, N] that hold integers of magnitude <= bound_a, bound_b; wraps.

    Exact: each pass over K keeps every partial sum within 2**24, where float32 has all integers.
    """
    step = EXACT_FLOAT32 // (bound_a * bound_b)
    assert step > 0, "operands too large for one exact float32 product"
    total = np.matmul(a[:, :step], b[:step]).astype(np.int32)
    for start in range(step, a.shape[1], step):
        total += np.matmul(a[:, start : start + step], b[start : start + step]).astype(np.int32)
    return total


def _per_slice(values: tuple[Any, ...], decode: Decode, ndim: int, dtype: Any) -> Array:
    array = np.asarray(values, dtype)
    if array.size == 1 or ndim == 0:
        return array.reshape(-1)[0:1].reshape(()) if array.size else np.zeros((), dtype)
    shape = [1] * ndim
    shape[decode.axis] = -1
    return array.reshape(shape)


RAW_DTYPE = {"fx": "i32", "q": "i8", "int": "i64", "mask": "i32"}  # of a Decode kind where the caller names none


def encode_real(decode: Decode, values: Any, dtype: str | None = None) -> Array:
    """Raw integers that stand for real ``values``.

    "fx": ``rint(x * 2**frac)`` saturated, exact from float32 and float64; nan gives 0. "q": ONNX QuantizeLinear,
    ``rint(float32(x / scale)) + zero_point`` saturated. "int": the integers, which must fit. "mask": 0 or
    1. ``dtype`` of the result defaults to i32, i8, i64, i32.
    """
    name = dtype or RAW_DTYPE[decode.kind]
    if decode.kind == "int":
        return _checked_cast(np.asarray(values), name)
    if decode.kind == "mask":
        return (np.asarray(values) != 0).astype(NUMPY_DTYPE[name])
    x = np.asarray(values, np.float64 if decode.kind == "fx" else np.float32)
    if decode.kind == "fx":
        real = np.rint(np.ldexp(x, decode.frac))
    else:
        scaled = x / _per_slice(decode.scale, decode, x.ndim, np.float32)
        real = np.rint(scaled).astype(np.float64) + _per_slice(decode.zero_point, decode, x.ndim, np.float64)
    return saturate_real(np.where(np.isnan(real), 0.0, real), name)


def saturate_real(values: Array, dtype: str) -> Array:
    """Integral float64 (infinities too) clipped to ``dtype``."""
    low, high = RANGE[dtype]
    above = values >= float(high)  # float64 has no 2**63 - 1: what rounds up to 2**63 must not be cast
    inside = np.maximum(np.where(above, 0.0, values), float(low))
    return np.where(above, high, inside.astype(INT64)).astype(NUMPY_DTYPE[dtype])


def _checked_cast(values: Array, dtype: str) -> Array:
    low, high = RANGE[dtype]
    if values.size and (values.min() < low or values.max() > high):
        found = values.min() if values.min() < low else values.max()
        raise UserError(
            f"integer tensor: limit {low} to {high} ({dtype}), found {found}. Use a wider buffer or clip it."
        )
    return values.astype(NUMPY_DTYPE[dtype])


def decode_raw(decode: Decode, raw: Any) -> Array:
    """Reals that raw integers stand for: "fx" float64 (exact), "q" float32 as ONNX DequantizeLinear, "int" unchanged,
    "mask" bool."""
    values = np.asarray(raw)
    if decode.kind == "mask":
        return np.asarray(values != 0)
    if decode.kind == "int":
        return values
    if decode.kind == "fx":
        return np.ldexp(values.astype(np.float64), -decode.frac)
    zero_point = _per_slice(decode.zero_point, decode, values.ndim, INT64)
    scale = _per_slice(decode.scale, decode, values.ndim, np.float32)
    return (values.astype(INT64) - zero_point).astype(np.float32) * scale
