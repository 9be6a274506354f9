"""Add, Sub, Mul, Div and Pow on fixed point; operands broadcast."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import inf

import numpy as np

from epu.constants import inverse
from epu.elementary import reciprocal
from epu.graph import Graph, Node
from epu.lanes import bits, mulr, rshr, saturate
from epu.operators.row import (
    FINER_OUTPUT,
    FLOAT_TENSORS,
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
    output_tensor,
    required,
    value,
)
from epu.operators.sqrt import sqrt_raw

SQUARE, ROOT = Fraction(2), Fraction(1, 2)
REPEATED = (Fraction(3), Fraction(4))  # products of products
KEPT_BITS = 31  # that a product of two int32 is shifted by, to be one again


def aligned(node: Node, graph: Graph, values: Values) -> tuple[Ints, Ints]:
    """Both operands at the output's fraction bits."""
    out = frac(output_tensor(node, graph))
    a, b = (rshr(value(node, values, i), frac(required(node, graph, i)) - out) for i in (0, 1))
    return a, b


def add_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    a, b = aligned(node, graph, values)
    return [saturate(a + b, "int32")]


def sub_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    a, b = aligned(node, graph, values)
    return [saturate(a - b, "int32")]


def mul_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    shift = frac(required(node, graph, 0)) + frac(required(node, graph, 1)) - frac(output_tensor(node, graph))
    return [saturate(mulr(value(node, values, 0), value(node, values, 1), shift), "int32")]


def div_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    divisor = required(node, graph, 1)
    invert = constant_inverse if is_constant(divisor) else raw_inverse
    factor, power = invert(value(node, values, 1))
    shift = power + frac(required(node, graph, 0)) - frac(divisor) - frac(output_tensor(node, graph))
    return [saturate(mulr(value(node, values, 0), factor, shift), "int32")]


def constant_inverse(raw: Ints) -> tuple[Ints, Ints]:
    """``(R, k)`` with ``R ~ 2**k / raw`` to 32 bits, computed at compile time."""
    pairs = [inverse(abs(each) or 1) for each in raw.ravel().tolist()]
    factor = np.array([each for each, _ in pairs], np.int64).reshape(raw.shape)
    power = np.array([each for _, each in pairs], np.int64).reshape(raw.shape)
    return np.where(raw < 0, -factor, factor), power


def raw_inverse(raw: Ints) -> tuple[Ints, Ints]:
    """The same on the machine, to 30 bits; 0 is taken as 1."""
    size = np.maximum(np.abs(raw), 1)
    length = bits(size)
    factor = reciprocal(size << (32 - length))
    return np.where(raw < 0, -factor, factor), 30 + length


def exponent(node: Node, graph: Graph) -> Fraction:
    return constant_reals(required(node, graph, 1))[0]


def pow_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    raw = value(node, values, 0)
    if exponent(node, graph) == ROOT:
        return [sqrt_raw(raw, frac(required(node, graph, 0)), frac(output_tensor(node, graph)))]
    product = raw
    for shift in power_shifts(node, graph):
        product = saturate(mulr(product, raw, shift), "int32").astype(np.int64)
    return [product.astype(np.int32)]


def power_shifts(node: Node, graph: Graph) -> list[int]:
    """Of each product: all but the last keep their upper 31 bits."""
    bits_in, bits_out = frac(required(node, graph, 0)), frac(output_tensor(node, graph))
    count = int(exponent(node, graph)) - 1
    before = bits_in * count - KEPT_BITS * (count - 1)  # fraction bits of the last product's first factor
    return [KEPT_BITS] * (count - 1) + [before + bits_in - bits_out]


def operand_intervals(node: Node, graph: Graph) -> tuple[Interval, Interval]:
    return interval(required(node, graph, 0)), interval(required(node, graph, 1))


def add_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    (a, b), (c, d) = operand_intervals(node, graph)
    return {node.outputs[0]: (a + c, b + d)}


def sub_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    (a, b), (c, d) = operand_intervals(node, graph)
    return {node.outputs[0]: (a - d, b - c)}


def mul_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    if node.inputs[0] == node.inputs[1]:
        return {node.outputs[0]: square(interval(required(node, graph, 0)))}
    ends = [x * y for x, y in product(*operand_intervals(node, graph))]
    return {node.outputs[0]: (min(ends), max(ends))}


def div_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    """No finite bound where the divisor's interval holds 0."""
    numerator, (low, high) = operand_intervals(node, graph)
    if low <= 0 <= high:
        return {node.outputs[0]: (-inf, inf)}
    ends = [x / y for x, y in product(numerator, (low, high))]
    return {node.outputs[0]: (min(ends), max(ends))}


def square(of: Interval) -> Interval:
    low, high = of
    least = 0.0 if low <= 0 <= high else min(low * low, high * high)
    return least, max(low * low, high * high)


def pow_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    source = interval(required(node, graph, 0))
    if exponent(node, graph) == ROOT:
        return {node.outputs[0]: (max(source[0], 0.0) ** 0.5, max(source[1], 0.0) ** 0.5)}
    power = int(exponent(node, graph))
    if power % 2 == 0:
        low, high = square(source)
        return {node.outputs[0]: (low ** (power // 2), high ** (power // 2))}
    return {node.outputs[0]: (source[0] ** power, source[1] ** power)}


def check_exponent(node: Node, graph: Graph) -> str | None:
    tensor = required(node, graph, 1)
    if not is_constant(tensor):
        return f"the variable '{tensor.name}'"
    reals = constant_reals(tensor)
    return (
        None if len(reals) == 1 and reals[0] in (SQUARE, ROOT, *REPEATED) else f"{[float(each) for each in reals[:4]]}"
    )


def check_constant_divisor(node: Node, graph: Graph) -> str | None:
    tensor = required(node, graph, 1)
    return f"0 in '{tensor.name}'" if is_constant(tensor) and 0 in constant_reals(tensor) else None


ROWS = (
    Operator("Add", "elementwise", (FLOAT_TENSORS, FINER_OUTPUT), add_reference, add_intervals),
    Operator("Sub", "elementwise", (FLOAT_TENSORS, FINER_OUTPUT), sub_reference, sub_intervals),
    Operator("Mul", "elementwise", (FLOAT_TENSORS,), mul_reference, mul_intervals),
    Operator(
        name="Div",
        family="elementwise",
        limits=(FLOAT_TENSORS, Limit("a constant divisor is not 0", check_constant_divisor)),
        reference=div_reference,
        intervals=div_intervals,
    ),
    Operator(
        name="Pow",
        family="elementwise",
        limits=(FLOAT_TENSORS, Limit("the exponent is the constant 2, 3, 4 or 0.5", check_exponent)),
        reference=pow_reference,
        intervals=pow_intervals,
    ),
)
