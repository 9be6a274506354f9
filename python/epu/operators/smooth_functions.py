"""Erf, Tanh, Sigmoid, Exp, Gelu, Softplus and Elu on fixed point, as polynomials."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import erf, exp, expm1, inf, log, log1p, tanh

from epu import real_functions as reals
from epu.graph import Graph, Node
from epu.operators.row import (
    FLOAT_TENSORS,
    WHOLE_UNITS,
    Array,
    Interval,
    Operator,
    OwnBound,
    Values,
    frac,
    interval,
    output_tensor,
    required,
    value,
)
from epu.smooth import EVEN, ODD, Polynomials, Smooth, polynomials_of, smooth_raw

LARGEST_EXPONENT = 709.0
LN_2 = log(2.0)
GELU_CUBE, GELU_ROOT = Decimal("0.044715"), (reals.TWO / reals.PI).sqrt()
TANH = "tanh"  # Gelu's attribute approximate


def centred_logistic(x: Decimal) -> Decimal:
    return reals.logistic(x) - reals.HALF


def softplus_tail(x: Decimal) -> Decimal:
    return reals.softplus(-x)


def gelu_tail(x: Decimal) -> Decimal:
    return -x * reals.normal(-x)


def gelu_tanh_tail(x: Decimal) -> Decimal:
    return -x * reals.logistic(-2 * GELU_ROOT * (x + GELU_CUBE * x * x * x))


@lru_cache(maxsize=64)
def elu_tail(alpha: float) -> Callable[[Decimal], Decimal]:
    return lambda x: reals.decimal(alpha) * (reals.exp(x) - 1)


ERF = Smooth(reals.erf, (0, 4.5), ODD)
TANH_CURVE = Smooth(reals.tanh, (0, 11.5), ODD)
SIGMOID = Smooth(centred_logistic, (0, 22.5), ODD, offset=Fraction(1, 2))
SOFTPLUS = Smooth(softplus_tail, (0, 22.5), EVEN, ramp=True)
GELU, GELU_TANH = (Smooth(tail, (0, 6.8), EVEN, ramp=True) for tail in (gelu_tail, gelu_tanh_tail))


def exponential(node: Node, graph: Graph) -> Smooth:
    """From where the result vanishes to the first input whose result leaves the output's format."""
    out, unit = frac(output_tensor(node, graph)), min(2.0 ** -frac(required(node, graph, 0)), 1.0)
    return Smooth(reals.exp, (-(out + 2) * LN_2, (31 - out) * LN_2 + unit))


def elu(node: Node, graph: Graph) -> Smooth:
    return Smooth(elu_tail(node.attrs.get("alpha", 1.0)), (-22.5, 0), ramp=True)


def gelu(node: Node, graph: Graph) -> Smooth:
    return GELU_TANH if node.attrs.get("approximate", "none") == TANH else GELU


FUNCTIONS: dict[str, Callable[[Node, Graph], Smooth]] = {
    "Erf": lambda node, graph: ERF,
    "Tanh": lambda node, graph: TANH_CURVE,
    "Sigmoid": lambda node, graph: SIGMOID,
    "Softplus": lambda node, graph: SOFTPLUS,
    "Gelu": gelu,
    "Exp": exponential,
    "Elu": elu,
}


def function_of(node: Node, graph: Graph) -> tuple[Smooth, Polynomials]:
    """A node's function, and its polynomials for the input's fraction bits."""
    f = FUNCTIONS[node.op](node, graph)
    return f, polynomials_of(f, frac(required(node, graph, 0)))


def smooth_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    f, polynomials = function_of(node, graph)
    bits = frac(required(node, graph, 0)), frac(output_tensor(node, graph))
    return [smooth_raw(f, polynomials, value(node, values, 0), *bits)]


def rising(function: Callable[[float], float]) -> Callable[[Node, Graph], dict[str, Interval]]:
    """Bounds of an increasing function."""

    def intervals(node: Node, graph: Graph) -> dict[str, Interval]:
        low, high = interval(required(node, graph, 0))
        return {node.outputs[0]: (function(low), function(high))}

    return intervals


def logistic(x: float) -> float:
    return 1 / (1 + exp(min(-x, LARGEST_EXPONENT)))


def softplus(x: float) -> float:
    return max(x, 0.0) + log1p(exp(-abs(x)))


def bounded_exp(x: float) -> float:
    return exp(x) if x < LARGEST_EXPONENT else inf


def gelu_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    """Its minimum is -0.17."""
    _, high = interval(required(node, graph, 0))
    return {node.outputs[0]: (-0.171, max(high, 0.0))}


def elu_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    low, high = interval(required(node, graph, 0))
    least = node.attrs.get("alpha", 1.0) * expm1(min(low, 0.0))
    return {node.outputs[0]: (min(least, high, 0.0), max(least, high, 0.0))}


INTERVALS: dict[str, Callable[[Node, Graph], dict[str, Interval]]] = {
    "Erf": rising(erf),
    "Tanh": rising(tanh),
    "Sigmoid": rising(logistic),
    "Softplus": rising(softplus),
    "Gelu": gelu_intervals,
    "Exp": rising(bounded_exp),
    "Elu": elu_intervals,
}

OWN_BOUNDS = {"Erf": OwnBound((-1.0, 1.0)), "Tanh": OwnBound((-1.0, 1.0)), "Sigmoid": OwnBound((0.0, 1.0))}


def row(name: str) -> Operator:
    return Operator(
        name, "smooth", (FLOAT_TENSORS, WHOLE_UNITS), smooth_reference, INTERVALS[name], own_bound=OWN_BOUNDS.get(name)
    )


ROWS = tuple(map(row, FUNCTIONS))
