"""Relu, Clip and HardSigmoid on fixed point."""

from __future__ import annotations

from fractions import Fraction
from math import inf

import numpy as np

from epu.constants import clip_to, fixed_constant, multiplier
from epu.graph import Graph, Node
from epu.lanes import mulr, saturate
from epu.operators.row import (
    FLOAT_TENSORS,
    WHOLE_UNITS,
    Array,
    Interval,
    Limit,
    Operator,
    OwnBound,
    Values,
    constant_reals,
    frac,
    input_tensor,
    interval,
    is_constant,
    output_tensor,
    required,
    same_format,
    value,
)


def relu_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    return [saturate(np.maximum(value(node, values, 0), 0), "int32")]


def relu_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    low, high = interval(required(node, graph, 0))
    return {node.outputs[0]: (max(low, 0.0), max(high, 0.0))}


def bound(node: Node, graph: Graph, name: str, index: int, default: float) -> float:
    """``min`` or ``max`` of a Clip, an attribute or a constant input."""
    tensor = input_tensor(node, graph, index)
    return float(constant_reals(tensor)[0]) if tensor is not None else float(node.attrs.get(name, default))


def bounds(node: Node, graph: Graph) -> Interval:
    return bound(node, graph, "min", 1, -inf), bound(node, graph, "max", 2, inf)


def raw_bound(real: float, bits: int) -> int:
    """A bound as an int32; infinite and out of range ones are the type's limits."""
    low, high = -(1 << 31), (1 << 31) - 1
    if real in (-inf, inf):
        return low if real < 0 else high
    return clip_to("int32", fixed_constant(Fraction(real), bits))


def clip_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    low, high = (raw_bound(each, frac(required(node, graph, 0))) for each in bounds(node, graph))
    return [saturate(np.minimum(np.maximum(value(node, values, 0), low), high), "int32")]


def clip_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    source, (low, high) = interval(required(node, graph, 0)), bounds(node, graph)
    return {node.outputs[0]: (min(max(source[0], low), high), min(max(source[1], low), high))}


def slope(node: Node) -> tuple[float, float]:
    """alpha and beta of a HardSigmoid."""
    return node.attrs.get("alpha", 0.2), node.attrs.get("beta", 0.5)


def hard_sigmoid_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    alpha, beta = slope(node)
    out = frac(output_tensor(node, graph))
    factor, shift = multiplier(alpha)
    line = mulr(value(node, values, 0), factor, shift + frac(required(node, graph, 0)) - out)
    raised = line + fixed_constant(float(np.float32(beta)), out)
    return [saturate(np.minimum(np.maximum(raised, 0), 1 << out), "int32")]


def unit_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return {node.outputs[0]: (0.0, 1.0)}


def check_constant_bounds(node: Node, graph: Graph) -> str | None:
    tensors = [input_tensor(node, graph, index) for index in (1, 2)]
    variable = [each.name for each in tensors if each is not None and not is_constant(each)]
    return f"'{variable[0]}'" if variable else None


ROWS = (
    Operator("Relu", "elementwise", (FLOAT_TENSORS,), relu_reference, relu_intervals, formats=same_format),
    Operator(
        name="Clip",
        family="elementwise",
        limits=(FLOAT_TENSORS, Limit("min and max are constants", check_constant_bounds)),
        reference=clip_reference,
        intervals=clip_intervals,
        formats=same_format,
    ),
    Operator(
        name="HardSigmoid",
        family="elementwise",
        limits=(FLOAT_TENSORS, WHOLE_UNITS),
        reference=hard_sigmoid_reference,
        intervals=unit_intervals,
        own_bound=OwnBound((0.0, 1.0)),
    ),
)
