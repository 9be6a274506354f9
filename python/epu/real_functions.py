"""Elementary functions on decimal numbers of 60 digits: what tables and polynomials are made from."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import wraps

from epu.constants import DECIMAL_DIGITS

Function = Callable[[Decimal], Decimal]
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
ONE, HALF, TWO = Decimal(1), Decimal("0.5"), Decimal(2)
ERF_IS_ONE = 12  # beyond it erf differs from 1 by less than 60 digits show


def precise(function: Function) -> Function:
    """Run with 60 digits."""

    @wraps(function)
    def run(x: Decimal) -> Decimal:
        with localcontext() as context:
            context.prec = DECIMAL_DIGITS
            return function(x)

    return run


@precise
def exp(x: Decimal) -> Decimal:
    return x.exp()


@precise
def log(x: Decimal) -> Decimal:
    return x.ln()


@precise
def sqrt(x: Decimal) -> Decimal:
    return x.sqrt()


@precise
def logistic(x: Decimal) -> Decimal:
    return ONE / (ONE + (-x).exp())


@precise
def tanh(x: Decimal) -> Decimal:
    return ONE - TWO / ((TWO * x).exp() + ONE)


@precise
def softplus(x: Decimal) -> Decimal:
    return (ONE + x.exp()).ln()


@precise
def erf(x: Decimal) -> Decimal:
    """``2/sqrt(pi) * exp(-x*x) * sum of x * (2*x*x)**n / (1 * 3 * ... (2n+1))``: all terms have one sign."""
    if abs(x) > ERF_IS_ONE:
        return ONE.copy_sign(x)
    term, total, n = x, x, 0
    while abs(term) > abs(total) * Decimal(10) ** -DECIMAL_DIGITS:
        n += 1
        term = term * TWO * x * x / (2 * n + 1)
        total += term
    return TWO / PI.sqrt() * (-x * x).exp() * total


@precise
def normal(x: Decimal) -> Decimal:
    """Cumulative distribution of the standard normal."""
    return HALF * (ONE + erf(x / TWO.sqrt()))


def decimal(value: Fraction | float | int) -> Decimal:
    """A number with 60 digits."""
    exact = Fraction(value)
    with localcontext() as context:
        context.prec = DECIMAL_DIGITS
        return Decimal(exact.numerator) / Decimal(exact.denominator)
