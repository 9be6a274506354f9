"""Reciprocal, inverse square root and exponential against 50-digit arithmetic, and the machine's operand limits."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epu import constants, elementary, lanes

mpmath.mp.dps = 50
RELATIVE = Fraction(1, 2**30) * Fraction(101, 100)
EXP_UNITS = 10
SAMPLES = 1 << 18


def dense(low: int, high: int) -> Any:
    """Edges, powers of two, and a random sample of low..high-1."""
    rng = np.random.default_rng(7)
    edges = [low, low + 1, high - 1, high - 2, (low + high) // 2, *(low + (1 << k) for k in range(30))]
    return np.concatenate([np.array([e for e in edges if low <= e < high]), rng.integers(low, high, SAMPLES)])


@given(st.integers(2**31, 2**32 - 1))
def test_reciprocal(d: int) -> None:
    found = int(elementary.reciprocal(np.array([d]))[0])
    assert abs(Fraction(found * d, 2**62) - 1) <= RELATIVE
    assert 2**30 <= found < 2**31


@given(st.integers(2**30, 2**32 - 1))
def test_inverse_sqrt(v: int) -> None:
    found = int(elementary.inverse_sqrt(np.array([v]))[0])
    assert abs(found * mpmath.sqrt(v) / 2**46 - 1) <= float(RELATIVE)
    assert 2**30 <= found < 2**31


def test_the_whole_domains_in_extended_precision() -> None:
    d, v = dense(2**31, 2**32), dense(2**30, 2**32)
    reciprocal = elementary.reciprocal(d).astype(np.longdouble) * d / np.longdouble(2) ** 62
    root = elementary.inverse_sqrt(v).astype(np.longdouble) * np.sqrt(v.astype(np.longdouble)) / np.longdouble(2) ** 46
    assert np.abs(reciprocal - 1).max() <= float(RELATIVE)
    assert np.abs(root - 1).max() <= float(RELATIVE)


@given(st.integers(0, 2**31 - 1), st.integers(-4, 58))
def test_exp_negative(d: int, bits: int) -> None:
    found = int(elementary.exp_negative(np.array([d]), bits)[0])
    assert abs(found - mpmath.exp(-mpmath.mpf(d) * mpmath.mpf(2) ** -bits) * 2**30) <= EXP_UNITS


@pytest.mark.parametrize("bits", [-4, 0, 13, 20, 27, 31, 45, 58])
def test_exp_negative_densely(bits: int) -> None:
    d = dense(0, min(2**31, max(4, int(25 * 2.0**bits))))
    exact = np.exp(-d.astype(np.longdouble) * np.longdouble(2) ** -bits) * 2**30
    assert np.abs(elementary.exp_negative(d, bits) - exact).max() <= EXP_UNITS
    assert elementary.exp_negative(np.array([0]), bits)[0] == 2**30


@given(st.integers(0, 2**63 - 1), st.integers(-20, 20).map(lambda n: 2 * n))
def test_normal_sqrt(w: int, bits: int) -> None:
    k, v, r = (int(each[0]) for each in elementary.normal_sqrt(np.array([w])))
    root = mpmath.sqrt(mpmath.mpf(w) * mpmath.mpf(2) ** -bits)
    found = mpmath.mpf(r * v) / 2**32 * mpmath.mpf(2) ** (k - bits // 2 - 30)
    assert abs(found - root) <= root * 2**-29


@pytest.fixture
def checked_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every product of the functions must fit the machine's multiplier: |a| <= 2**31, |b| < 2**32."""
    product = lanes.mulr

    def mulr(a: Any, b: Any, n: Any) -> Any:
        sizes = sorted(int(np.abs(np.asarray(each)).max()) for each in (a, b))
        assert sizes[0] <= 2**31
        assert sizes[1] < 2**32
        return product(a, b, n)

    monkeypatch.setattr(elementary, "mulr", mulr)


@pytest.mark.usefixtures("checked_products")
@pytest.mark.parametrize(
    ("function", "low", "high"),
    [(elementary.reciprocal, 2**31, 2**32), (elementary.inverse_sqrt, 2**30, 2**32)],
)
def test_products_fit_the_multiplier(function: Callable[[Any], Any], low: int, high: int) -> None:
    function(dense(low, high))


@pytest.mark.usefixtures("checked_products")
def test_products_of_the_exponential_fit_the_multiplier() -> None:
    for bits in (-4, 0, 27, 58):
        elementary.exp_negative(dense(0, 2**31), bits)


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=10**9))
def test_inverse(value: Fraction) -> None:
    factor, k = constants.inverse(value)
    assert 2**31 <= factor < 2**32
    assert abs(factor - Fraction(2) ** k / value) <= Fraction(1, 2)


@given(st.floats(2.0**-100, 2.0**100, width=32))
def test_parts(scale: float) -> None:
    mantissa, exponent = constants.parts(scale)
    assert mantissa * Fraction(2) ** exponent == Fraction(scale)
    assert 2**23 <= mantissa < 2**24


def test_tables() -> None:
    for i, entry in enumerate(constants.exp2_table(256, 30)):
        assert entry == int(mpmath.nint(mpmath.mpf(2) ** (30 - mpmath.mpf(i) / 256)))
    scale = float(np.float32(0.0371))
    for d, entry in enumerate(constants.exp_table(scale, 30)):
        assert entry == int(mpmath.nint(mpmath.exp(-mpmath.mpf(d) * scale) * 2**30))
    assert int(mpmath.nint(mpmath.log(mpmath.e, 2) * 2**30)) == elementary.LOG2_E
    assert int(mpmath.nint(mpmath.log(2) * 2**31)) == elementary.LN_2


@pytest.mark.parametrize("count", [1, 2, 3, 4, 255, 256, 257])
def test_ceil_log2(count: int) -> None:
    p = constants.ceil_log2(count)
    assert 2**p >= count
    assert p == 0 or 2 ** (p - 1) < count
