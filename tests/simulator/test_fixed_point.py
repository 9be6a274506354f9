"""Fixed-point arithmetic against big integers and fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from epu.simulator import fixed_point as fp
from epu.simulator.errors import UserError
from epu.simulator.program import Decode

I64 = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-300, 300),
    st.builds(lambda k, d: fp.wrap_int((1 << k) + d), st.integers(0, 63), st.integers(-2, 2)),
    st.builds(lambda k, d: fp.wrap_int(-(1 << k) + d), st.integers(0, 63), st.integers(-2, 2)),
)
I32 = st.one_of(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-300, 300))
AMOUNT = st.integers(-70, 70)


def half_even(value: Fraction) -> int:
    """Python rounds a Fraction half to even, exactly."""
    return round(value)


def rshr(x: int, s: int) -> int:
    s = max(-63, min(63, s))
    return fp.wrap_int(half_even(Fraction(x) / Fraction(2) ** s))


def round24(x: int) -> int:
    shift = max(0, abs(x).bit_length() - 24)
    return fp.wrap_int(half_even(Fraction(x, 1 << shift)) << shift)


ORACLE: dict[str, Any] = {
    "mov": lambda a, b, c, d: a,
    "add": lambda a, b, c, d: a + b,
    "sub": lambda a, b, c, d: a - b,
    "mul": lambda a, b, c, d: a * b,
    "and": lambda a, b, c, d: a & b,
    "or": lambda a, b, c, d: a | b,
    "xor": lambda a, b, c, d: a ^ b,
    "min": lambda a, b, c, d: min(a, b),
    "max": lambda a, b, c, d: max(a, b),
    "lt": lambda a, b, c, d: int(a < b),
    "le": lambda a, b, c, d: int(a <= b),
    "eq": lambda a, b, c, d: int(a == b),
    "ne": lambda a, b, c, d: int(a != b),
    "sel": lambda a, b, c, d: b if a else c,
    "shl": lambda a, b, c, d: a << max(0, min(63, b)),
    "shr": lambda a, b, c, d: a >> max(0, min(63, b)),
    "rshr": lambda a, b, c, d: rshr(a, b),
    "mulr": lambda a, b, c, d: rshr(fp.wrap_int(a * b), c) + d,
    "mulrf": lambda a, b, c, d: rshr(round24(fp.wrap_int(round24(a) * b)), c) + d,
    "round24": lambda a, b, c, d: round24(a),
    "clz": lambda a, b, c, d: 64 - (a % (1 << 64)).bit_length(),
}


def test_every_operation_has_an_oracle() -> None:
    assert set(ORACLE) == set(fp.ALU)


@pytest.mark.parametrize("op", sorted(fp.ALU))
@settings(deadline=None, max_examples=300, derandomize=True)
@given(a=I64, b=st.one_of(I64, AMOUNT), c=AMOUNT, d=I32, constant=st.booleans())
@example(a=-(1 << 63), b=63, c=63, d=0, constant=True)
@example(a=(1 << 62), b=63, c=63, d=0, constant=True)
@example(a=(1 << 62) + 1, b=63, c=63, d=0, constant=False)
@example(a=-(1 << 62), b=63, c=63, d=-1, constant=False)
@example(a=5, b=1, c=1, d=0, constant=True)
@example(a=-5, b=1, c=1, d=0, constant=True)
@example(a=7, b=0, c=0, d=0, constant=True)
@example(a=0, b=0, c=0, d=0, constant=True)
def test_alu_equals_big_integers(op: str, a: int, b: int, c: int, d: int, constant: bool) -> None:
    lanes = [np.array([v, v], np.int64) for v in (a, b, c, d)]
    if constant:
        lanes[1:] = [np.array(v, np.int64) for v in (b, c, d)]
    with np.errstate(over="ignore"):
        found = fp.ALU[op](*lanes)
    assert found.tolist() == [fp.wrap_int(ORACLE[op](a, b, c, d))] * 2


@settings(deadline=None, max_examples=300, derandomize=True)
@given(quotient=st.integers(-(1 << 30), 1 << 30), shift=st.integers(1, 30))
def test_ties_go_to_even(quotient: int, shift: int) -> None:
    tie = (2 * quotient + 1) << (shift - 1)
    found = int(fp.shift_right_round(np.array([tie], np.int64), shift)[0])
    assert found % 2 == 0
    assert abs(Fraction(tie, 1 << shift) - found) == Fraction(1, 2)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(values=st.lists(I32, min_size=1, max_size=5), b=st.integers(-(1 << 24), 1 << 24), c=st.integers(-8, 63))
def test_float_carrier_is_exact_or_refuses(values: list[int], b: int, c: int) -> None:
    out, limit = np.empty(len(values)), min(2.0**52, 2.0 ** (53 - c))
    if fp.exact_float_product(out, np.array(values, np.int32), b * 2.0**-c, limit):
        assert out.tolist() == [rshr(v * b, c) for v in values]
    else:
        assert max(abs(v * b) for v in values) >= min(1 << 53, 1 << (52 + min(0, c)))


@settings(deadline=None, max_examples=200, derandomize=True)
@given(values=st.lists(I64, min_size=1, max_size=5), b=st.integers(-(1 << 24), 1 << 24), c=st.integers(-8, 63))
def test_float32_carrier_rounds_twice(values: list[int], b: int, c: int) -> None:
    out, single = np.empty(len(values)), np.empty(len(values), np.float32)
    limit = min(2.0**52, 2.0 ** (62 - c))
    if fp.rounded_float_product(out, single, np.array(values, np.int64), np.float32(b * 2.0**-c), limit):
        assert out.tolist() == [rshr(round24(round24(v) * b), c) for v in values]


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "i64"])
@pytest.mark.parametrize("saturate", [False, True])
def test_narrowing(dtype: str, saturate: bool) -> None:
    low, high = fp.RANGE[dtype]
    exact = [0, -1, 1, 127, 128, -129, 255, 256, (1 << 31) - 1, 1 << 31, -(1 << 31) - 1, (1 << 52) - 1, -(1 << 52)]
    want = [max(low, min(high, v)) if saturate else fp.wrap_int(v, dtype) for v in exact]
    out = np.empty(len(exact), fp.NUMPY_DTYPE[dtype])
    fp.narrow(out, np.array(exact, np.int64), dtype, saturate)
    assert out.tolist() == want
    fp.narrow_float(out, np.array(exact, np.float64), dtype, saturate)
    assert out.tolist() == want


@settings(deadline=None, max_examples=300, derandomize=True)
@given(st.floats(width=32, min_value=2.0**-100, max_value=2.0**100))
def test_multiplier_is_the_scale(scale: float) -> None:
    multiplier, shift = fp.multiplier_of(scale)
    assert 0 < multiplier < 1 << 24
    assert Fraction(scale) == Fraction(multiplier) / Fraction(2) ** shift


def test_multiplier_of_zero() -> None:
    assert fp.multiplier_of(0.0) == (0, 0)


@pytest.mark.parametrize("k", [1, 3, 1023, 1024, 1025, 2500])
@pytest.mark.parametrize("extreme", [False, True])
def test_matmul_is_exact(k: int, extreme: bool) -> None:
    rng = np.random.default_rng(k)
    a, b = rng.integers(-128, 128, (3, k)), rng.integers(-128, 128, (k, 2))
    if extreme:
        a[:], b[:] = -128, -128
    found = fp.matmul_int8(a.astype(np.float32), b.astype(np.float32))
    assert found.tolist() == (a @ b).tolist()


def test_matmul_of_bytes_splits_earlier() -> None:
    a, b = np.full((1, 600), 255.0, np.float32), np.full((600, 1), 255.0, np.float32)
    a[0, 0], a[0, 599] = 254, 253
    assert int(fp.matmul_int8(a, b, 255, 255)[0, 0]) == 255 * (255 * 598 + 254 + 253)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(x=st.floats(width=32, allow_nan=False), frac=st.integers(-4, 40))
@example(x=0.5, frac=0)
@example(x=1.5, frac=0)
@example(x=-2.5, frac=0)
@example(x=float("inf"), frac=3)
def test_fixed_encoding_is_exact(x: float, frac: int) -> None:
    found = int(fp.encode_real(Decode("fx", frac), [x])[0])
    if np.isinf(x):
        assert found == ((1 << 31) - 1 if x > 0 else -(1 << 31))
    else:
        want = half_even(Fraction(x) * Fraction(2) ** frac)
        assert found == max(-(1 << 31), min((1 << 31) - 1, want))


def test_fixed_encoding_of_nan_and_round_trip() -> None:
    decode = Decode("fx", 30)
    assert fp.encode_real(decode, [float("nan")]).tolist() == [0]
    raw = np.array([-(1 << 31), -1, 0, 1, (1 << 31) - 1], np.int32)
    assert fp.encode_real(decode, fp.decode_raw(decode, raw)).tolist() == raw.tolist()


def test_quantize_as_onnx() -> None:
    decode = Decode("q", scale=(0.1,), zero_point=(3,))
    assert fp.encode_real(decode, [0.25, 0.35, -0.05, 1e9, -1e9]).tolist() == [5, 7, 3, 127, -128]
    assert fp.encode_real(decode, [1e9, -1e9], "u8").tolist() == [255, 0]
    got = fp.decode_raw(decode, np.array([5, -128], np.int8))
    assert got.dtype == np.float32
    assert got.tolist() == [
        np.float32(2) * np.float32(0.1),
        np.float32(-131) * np.float32(0.1),
    ]


def test_quantize_per_axis() -> None:
    decode = Decode("q", scale=(0.5, 0.25), zero_point=(0, 1), axis=1)
    assert fp.encode_real(decode, [[1.0, 1.0], [2.0, -1.0]]).tolist() == [[2, 5], [4, -3]]
    assert fp.decode_raw(decode, [[2, 5], [4, -3]]).tolist() == [[1.0, 1.0], [2.0, -1.0]]


def test_integers_are_checked() -> None:
    assert fp.encode_real(Decode("int"), [1, 2], "i8").tolist() == [1, 2]
    with pytest.raises(UserError, match="limit -128 to 127 .i8., found 128"):
        fp.encode_real(Decode("int"), [1, 128], "i8")


def test_saturation_to_64_bits() -> None:
    assert fp.saturate_real(np.array([1e30, -1e30, 5.0]), "i64").tolist() == [(1 << 63) - 1, -(1 << 63), 5]
