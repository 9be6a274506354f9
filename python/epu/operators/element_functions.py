"""Neg, Abs, Max, Min, Reciprocal, Log, LeakyRelu, PRelu and HardSwish on fixed point."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import inf, log

import numpy as np

from epu import real_functions as reals
from epu.constants import fixed_constant, multiplier
from epu.fixed_formats import MOST_FRACTION_BITS
from epu.graph import Graph, Node
from epu.lanes import bits, mulr, rshr, saturate
from epu.operators.binary import aligned, raw_inverse
from epu.operators.row import (
    FINER_OUTPUT,
    FLOAT_TENSORS,
    WHOLE_UNITS,
    Array,
    Interval,
    Ints,
    Limit,
    Operator,
    Values,
    constant_reals,
    frac,
    interval,
    is_constant,
    magnitude,
    output_tensor,
    required,
    same_format,
    value,
)
from epu.smooth import Polynomials, evaluate, polynomials

LN_2_BITS = 32
LN_2 = fixed_constant(Fraction(reals.log(Decimal(2))), LN_2_BITS)
MANTISSA_BITS = 31  # of a logarithm's normalised argument
LEAST_UNIT = 2.0**-MOST_FRACTION_BITS
GATE_FRAC = 30  # of the gate of a HardSwish
GATE_SLOPE, GATE_OFFSET = 1 / 6, Fraction(1, 2)


def neg_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    return [saturate(-value(node, values, 0), "int32")]


def abs_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    return [saturate(np.abs(value(node, values, 0)), "int32")]


def extreme_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    choose = np.maximum if node.op == "Max" else np.minimum
    return [saturate(choose(*aligned(node, graph, values)), "int32")]


def reciprocal_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    factor, power = raw_inverse(value(node, values, 0))
    shift = power - frac(required(node, graph, 0)) - frac(output_tensor(node, graph))
    return [saturate(rshr(factor, shift), "int32")]


def log_polynomials() -> Polynomials:
    """Of a number from 1/2 to 1 in Q31."""
    return polynomials(reals.log, (0.5, 1.0), MANTISSA_BITS)


def log_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    raw: Ints = np.maximum(value(node, values, 0), 1)
    length, p, out = bits(raw), log_polynomials(), frac(output_tensor(node, graph))
    part = rshr(evaluate(p, raw << (MANTISSA_BITS - length)), p.frac - out)
    whole = mulr(length - frac(required(node, graph, 0)), LN_2, LN_2_BITS - out)
    return [saturate(part + whole, "int32")]


def leaky_relu_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    raw = value(node, values, 0)
    factor, shift = multiplier(alpha(node))
    return [saturate(np.where(raw < 0, mulr(raw, factor, shift), raw), "int32")]


def alpha(node: Node) -> float:
    return float(node.attrs.get("alpha", 0.01))


def prelu_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    raw = value(node, values, 0)
    scaled = mulr(raw, value(node, values, 1), frac(required(node, graph, 1)))
    return [saturate(np.where(raw < 0, scaled, raw), "int32")]


def gate_shift(node: Node, graph: Graph) -> tuple[int, int]:
    """Multiplier and shift of x / 6 in the gate's format."""
    factor, shift = multiplier(GATE_SLOPE)
    return factor, shift + frac(required(node, graph, 0)) - GATE_FRAC


def hard_swish_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    raw = value(node, values, 0)
    line = mulr(raw, *gate_shift(node, graph)) + fixed_constant(GATE_OFFSET, GATE_FRAC)
    gate = np.minimum(np.maximum(line, 0), 1 << GATE_FRAC)
    shift = frac(required(node, graph, 0)) + GATE_FRAC - frac(output_tensor(node, graph))
    return [saturate(mulr(raw, gate, shift), "int32")]


def neg_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    low, high = interval(required(node, graph, 0))
    return {node.outputs[0]: (-high, -low)}


def abs_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    low, high = interval(required(node, graph, 0))
    return {node.outputs[0]: (max(low, -high, 0.0), magnitude((low, high)))}


def extreme_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    (a, b), (c, d) = (interval(required(node, graph, index)) for index in (0, 1))
    choose = max if node.op == "Max" else min
    return {node.outputs[0]: (choose(a, c), choose(b, d))}


def reciprocal_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    low, high = interval(required(node, graph, 0))
    return {node.outputs[0]: (-inf, inf) if low <= 0 <= high else (1 / high, 1 / low)}


def log_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    """What is not positive is taken as one unit of the input."""
    low, high = (log(max(end, LEAST_UNIT)) for end in interval(required(node, graph, 0)))
    return {node.outputs[0]: (low, high)}


def leaky_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    """Of LeakyRelu and PRelu: the slope is between 0 and 1."""
    low, high = interval(required(node, graph, 0))
    return {node.outputs[0]: (min(low, 0.0), max(high, 0.0))}


def hard_swish_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    """Its minimum is -3/8."""
    _, high = interval(required(node, graph, 0))
    return {node.outputs[0]: (-0.375, max(high, 0.0))}


def check_alpha(node: Node, graph: Graph) -> str | None:
    found = alpha(node)
    return None if -1 <= found <= 1 else str(found)


def check_slope(node: Node, graph: Graph) -> str | None:
    tensor = required(node, graph, 1)
    if not is_constant(tensor):
        return f"the variable '{tensor.name}'"
    largest = max((abs(each) for each in constant_reals(tensor)), default=Fraction(0))
    return None if largest <= 1 else str(float(largest))


F = (FLOAT_TENSORS,)
ROWS = (
    Operator("Neg", "elementwise", F, neg_reference, neg_intervals, formats=same_format),
    Operator("Abs", "elementwise", F, abs_reference, abs_intervals, formats=same_format),
    Operator("Max", "elementwise", (*F, FINER_OUTPUT), extreme_reference, extreme_intervals),
    Operator("Min", "elementwise", (*F, FINER_OUTPUT), extreme_reference, extreme_intervals),
    Operator("Reciprocal", "elementwise", F, reciprocal_reference, reciprocal_intervals),
    Operator("Log", "smooth", F, log_reference, log_intervals),
    Operator(
        name="LeakyRelu",
        family="elementwise",
        limits=(FLOAT_TENSORS, Limit("alpha is from -1 to 1", check_alpha)),
        reference=leaky_relu_reference,
        intervals=leaky_intervals,
        formats=same_format,
    ),
    Operator(
        name="PRelu",
        family="elementwise",
        limits=(FLOAT_TENSORS, Limit("the slopes are constants from -1 to 1", check_slope)),
        reference=prelu_reference,
        intervals=leaky_intervals,
        formats=same_format,
    ),
    Operator(
        name="HardSwish",
        family="elementwise",
        limits=(FLOAT_TENSORS, WHOLE_UNITS),
        reference=hard_swish_reference,
        intervals=hard_swish_intervals,
    ),
)
