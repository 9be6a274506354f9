"""Smooth functions as polynomials, against 40-digit arithmetic over their whole windows and the edges of int32."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest

from epu import real_functions as reals
from epu.graph import Fixed, Graph, Node, Tensor
from epu.operators.smooth_functions import FUNCTIONS
from epu.reference import run_reference
from epu.smooth import polynomials

mpmath.mp.dps = 40
BOUND = 2.0**-28


def gelu_tanh(x: Any) -> Any:
    return x * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))) / 2


CASES: list[tuple[str, dict[str, Any], Callable[[Any], Any]]] = [
    ("Erf", {}, mpmath.erf),
    ("Tanh", {}, mpmath.tanh),
    ("Sigmoid", {}, lambda x: 1 / (1 + mpmath.exp(-x))),
    ("Softplus", {}, lambda x: mpmath.log1p(mpmath.exp(x)) if x < 500 else x),
    ("Gelu", {}, lambda x: x * mpmath.ncdf(x)),
    ("Gelu", {"approximate": "tanh"}, gelu_tanh),
    ("Elu", {"alpha": 1.0}, lambda x: x if x > 0 else mpmath.expm1(x)),
    ("Elu", {"alpha": 0.3}, lambda x: x if x > 0 else mpmath.mpf(0.3) * mpmath.expm1(x)),
    ("Exp", {}, mpmath.exp),
]


def samples(bits: int) -> Any:
    """Edges of int32, a few codes round 0, a walk over -30 to 30, random codes."""
    rng = np.random.default_rng(bits)
    limit = 2**31 - 1
    walk = np.clip(np.linspace(-30, 30, 601) * 2.0**bits, -limit, limit).astype(np.int64)
    return np.concatenate([[-limit - 1, -limit, limit], np.arange(-5, 6), walk, rng.integers(-limit, limit, 300)])


def evaluated(op: str, attrs: dict[str, Any], raw: Any, fa: int, fo: int) -> Any:
    tensors = {"x": Tensor("x", raw.shape, Fixed(fa)), "y": Tensor("y", raw.shape, Fixed(fo))}
    return run_reference(Graph("one", [Node("n", op, ["x"], ["y"], attrs)], tensors, ["x"], ["y"]), {"x": raw})["y"]


@pytest.mark.parametrize(("fa", "fo"), [(31, 30), (28, 28), (26, 24), (20, 20), (3, 3)])
@pytest.mark.parametrize(("op", "attrs", "exact"), CASES)
def test_error_bound(op: str, attrs: dict[str, Any], exact: Callable[[Any], Any], fa: int, fo: int) -> None:
    raw = samples(fa)
    found = evaluated(op, attrs, raw, fa, fo)
    limit = 2**31 - 1
    largest = 2.0 ** (33 - fo) if op == "Exp" else 1.0  # Exp: 2**-26 of the format
    roundings = 1.02 if op in ("Softplus", "Gelu", "Elu") else 0.51  # the polynomial's and the ramp's, or one
    for code, value in zip(raw.tolist(), found.tolist()):
        real = exact(mpmath.mpf(code) * mpmath.mpf(2) ** -fa) * mpmath.mpf(2) ** fo
        wanted = min(max(real, -limit - 1), limit)
        assert abs(value - wanted) <= roundings + BOUND * largest * 2.0**fo, (code, value, wanted)


def test_every_function_has_a_case() -> None:
    assert {op for op, _, _ in CASES} == set(FUNCTIONS)


@pytest.mark.parametrize("name", ["erf", "tanh", "logistic", "softplus", "normal", "exp"])
def test_sixty_digits(name: str) -> None:
    exact = {
        "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
        "softplus": lambda x: mpmath.log(1 + mpmath.exp(x)),
        "normal": mpmath.ncdf,
    }.get(name, getattr(mpmath, name, None))
    for real in (Fraction(-7, 3), Fraction(1, 1000), Fraction(5, 2), Fraction(9)):
        found = mpmath.mpf(str(getattr(reals, name)(reals.decimal(real))))
        wanted = exact(mpmath.mpf(real.numerator) / real.denominator)
        assert abs(found - wanted) < abs(wanted) * mpmath.mpf(10) ** -30


def test_coefficients_and_what_is_added_to_them_fit_int32() -> None:
    for function in (reals.erf, reals.exp, reals.softplus):
        tables = polynomials(function, (-4.0, 9.0), 27).tables
        assert sum(np.abs(table.astype(np.int64)) for table in tables[1:]).max() < 2**31
        assert max(int(np.abs(table.astype(np.int64)).max()) for table in tables) <= 2**30
