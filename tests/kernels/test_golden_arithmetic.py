"""The array's operations as LLVM runs them for the golden answer, against exact fractions and big integers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from epu.tir_schedules import intrinsics
from epu.tir_schedules.tvm_api import HOST_TARGET, te, tvm

COUNT = 4096
LOW, HIGH = -(1 << 63), (1 << 63) - 1
Ints = NDArray[np.int64]


def values(rng: np.random.Generator, low: int, high: int) -> Ints:
    """All magnitudes, many neighbours of powers of two, both ends."""
    spread = rng.integers(low, high, COUNT, endpoint=True) >> rng.integers(0, 62, COUNT)
    powers = np.clip((1 << rng.integers(0, high.bit_length(), COUNT)) + rng.integers(-2, 3, COUNT), low, high)
    found = np.where(rng.integers(0, 2, COUNT) == 1, spread, powers)
    found[:8], found[8:16] = low, high
    return found


def on_host(body: Callable[..., Any], *columns: Ints) -> list[int]:
    """The operation on each lane, compiled as golden kernels are."""
    inputs = [te.placeholder((COUNT,), "int64", name=f"x{k}") for k in range(len(columns))]
    result = te.compute((COUNT,), lambda i: body(*[each[i] for each in inputs]).astype("int64"), name="y")
    built = tvm.build(te.create_prim_func([*inputs, result]), target=tvm.target.Target(HOST_TARGET, HOST_TARGET))
    out = tvm.nd.empty((COUNT,), "int64")
    built(*(tvm.nd.array(each) for each in columns), out)
    return [int(each) for each in out.numpy()]


def shifted(x: int, amount: int) -> int:
    """``x * 2**-amount`` rounded half to even; to the left it wraps."""
    amount = max(-63, min(amount, 63))
    return round(Fraction(x, 1 << amount)) if amount > 0 else wrapped(x << -amount)


def wrapped(x: int) -> int:
    return (x + (1 << 63)) % (1 << 64) - (1 << 63)


def nearest24(x: int) -> int:
    excess = max(abs(x).bit_length() - 24, 0)
    return wrapped(round(Fraction(x, 1 << excess)) << excess)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def test_rshr(rng: np.random.Generator) -> None:
    """Also next to the ends of 64 bits, where adding half an LSB would wrap; amounts beyond 63 mean 63."""
    x, amount = values(rng, LOW, HIGH), rng.integers(-3, 70, COUNT)
    found = on_host(intrinsics.rshr, x, amount)
    assert found == [shifted(int(a), int(n)) for a, n in zip(x, amount)]


def test_mulr(rng: np.random.Generator) -> None:
    a, b = values(rng, -(1 << 31), (1 << 31) - 1), values(rng, 0, (1 << 32) - 1)
    amount, addend = rng.integers(0, 64, COUNT), rng.integers(-200, 200, COUNT)
    found = on_host(intrinsics.mulr, a, b, amount, addend)
    assert found == [shifted(int(p) * int(q), int(n)) + int(d) for p, q, n, d in zip(a, b, amount, addend)]


def test_mulrf(rng: np.random.Generator) -> None:
    a, b = values(rng, -(1 << 31), (1 << 31) - 1), values(rng, 0, (1 << 24) - 1)
    amount = rng.integers(0, 64, COUNT)
    found = on_host(intrinsics.mulrf, a, b, amount)
    assert found == [shifted(nearest24(nearest24(int(p)) * int(q)), int(n)) for p, q, n in zip(a, b, amount)]


def test_round24(rng: np.random.Generator) -> None:
    x = values(rng, -(1 << 62), 1 << 62)
    assert on_host(intrinsics.round24, x) == [nearest24(int(a)) for a in x]


def test_clz(rng: np.random.Generator) -> None:
    x = values(rng, 0, HIGH)
    assert on_host(intrinsics.clz, x) == [64 - int(a).bit_length() for a in x]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_sat(dtype: str, rng: np.random.Generator) -> None:
    x, info = values(rng, LOW, HIGH), np.iinfo(dtype)
    found = on_host(lambda a: intrinsics.sat(a, dtype), x)
    assert found == [min(max(int(a), int(info.min)), int(info.max)) for a in x]
