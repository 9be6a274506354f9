"""LayerNormalization, and LayerNormDecomposed: the nine-node group with each inner tensor observable."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt

import numpy as np

from epu.constants import ceil_log2, fixed_constant, inverse, is_power_of_two
from epu.elementary import normal_sqrt
from epu.graph import Graph, Node
from epu.lanes import bits, mulr, rshr, saturate
from epu.operators.reduce_mean import mean, mean_constants
from epu.operators.row import (
    FLOAT_TENSORS,
    Array,
    Interval,
    Ints,
    Limit,
    Operator,
    Values,
    frac,
    input_tensor,
    interval,
    is_constant,
    output_tensor,
    required,
    value,
)

DEFAULT_EPSILON = 1e-5
LONGEST_ROW = 1 << 20
ROLES = ("mean", "centred", "square", "variance", "variance_epsilon", "deviation", "normalised", "scaled")


NARROW_ROLES = ("mean", "centred", "deviation", "normalised", "scaled")
WIDE_ROLES = ("square", "variance", "variance_epsilon")


@dataclass(frozen=True)
class LayerNormFormat:
    """Fraction bits of the inner tensors; ``wide``: of the int64 squares and variances; ``square_shift`` is sigma."""

    mean: int
    centred: int
    square_shift: int
    wide: int
    deviation: int
    normalised: int
    scaled: int


def square_shift(count: int) -> int:
    """ceil(log2 N) rounded up to even: N squares of int32 shifted by it add up in int64."""
    return (ceil_log2(count) + 1) // 2 * 2


def normalised_axes(node: Node, graph: Graph) -> tuple[int, ...]:
    rank = len(required(node, graph, 0).shape)
    return tuple(range(node.attrs.get("axis", -1) % rank, rank))


def normalised_count(node: Node, graph: Graph) -> int:
    shape = required(node, graph, 0).shape
    return prod(shape[axis] for axis in normalised_axes(node, graph))


def layer_norm_format(node: Node, graph: Graph) -> LayerNormFormat:
    """Formats of the inner tensors: of their own types where they have names, else from the bounds of the input."""
    x = frac(required(node, graph, 0))
    shift = square_shift(normalised_count(node, graph))
    if "mean" not in node.attrs:
        normalised = 30 - ceil_log2(normalised_count(node, graph)) // 2 - 1
        out = frac(output_tensor(node, graph))
        return LayerNormFormat(x, x - 1, shift, 2 * (x - 1) - shift, x - 1, normalised, out)
    named = {role: frac(graph.tensors[node.attrs[role]]) for role in NARROW_ROLES}
    return LayerNormFormat(square_shift=shift, wide=2 * named["centred"] - shift, **named)


def layer_norm(node: Node, graph: Graph, values: Values) -> dict[str, Array]:
    """Every tensor of the group, by role; ``output`` is the result."""
    form, axes = layer_norm_format(node, graph), normalised_axes(node, graph)
    count, x = normalised_count(node, graph), required(node, graph, 0)
    raw = value(node, values, 0)
    found: dict[str, Array] = {"mean": mean(raw, axes, mean_constants(count, frac(x), form.mean))}
    found["centred"] = centre(raw, frac(x), found["mean"].astype(np.int64), form)
    d = found["centred"].astype(np.int64)
    found["square"] = mulr(d, d, form.square_shift)
    found["variance"] = variance(found["square"], axes, count)
    epsilon = fixed_constant(float(np.float32(node.attrs.get("epsilon", DEFAULT_EPSILON))), form.wide)
    found["variance_epsilon"] = np.maximum(found["variance"] + epsilon, 1)
    k, v, root = normal_sqrt(found["variance_epsilon"])
    half = form.wide // 2
    found["deviation"] = saturate(rshr(mulr(root, v, 32), 30 - k + half - form.deviation), "int32")
    found["normalised"] = saturate(mulr(d, root, form.centred - half + 30 + k - form.normalised), "int32")
    return {**found, **scale_and_shift(node, graph, values, found["normalised"], form)}


def centre(raw: Ints, x_frac: int, row_mean: Ints, form: LayerNormFormat) -> Array:
    return saturate(rshr(raw, x_frac - form.centred) - rshr(row_mean, form.mean - form.centred), "int32")


def variance(square: Ints, axes: tuple[int, ...], count: int) -> Ints:
    """Mean of the squares in their own int64 format."""
    return mean_of_squares(square.sum(axis=axes, keepdims=True), count)


def mean_of_squares(total: Ints, count: int) -> Ints:
    """A sum of int64 squares over their number, in the format of the sum."""
    p = ceil_log2(count)
    if is_power_of_two(count):
        return rshr(total, p)
    down = np.maximum(bits(total) - 31, 0)
    factor, k = inverse(count)
    return rshr(mulr(total >> down, factor, k - p), p - down)


def scale_and_shift(node: Node, graph: Graph, values: Values, z: Array, form: LayerNormFormat) -> dict[str, Array]:
    """gamma * z, then + beta."""
    out = frac(output_tensor(node, graph))
    scaled_shift = form.normalised + frac(required(node, graph, 1)) - form.scaled
    scaled = saturate(mulr(z.astype(np.int64), value(node, values, 1), scaled_shift), "int32")
    total = rshr(scaled.astype(np.int64), form.scaled - out)
    beta = input_tensor(node, graph, 2)
    if beta is not None:
        total = total + rshr(value(node, values, 2), frac(beta) - out)
    return {"scaled": scaled, "output": saturate(total, "int32")}


def layer_norm_formats(node: Node, graph: Graph) -> dict[str, int]:
    """The mean as the input; squares and variances as the centred values allow."""
    wide = 2 * frac(graph.tensors[node.attrs["centred"]]) - square_shift(normalised_count(node, graph))
    formats = {node.attrs[role]: wide for role in WIDE_ROLES}
    return {**formats, node.attrs["mean"]: frac(required(node, graph, 0))}


def layer_norm_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    return [layer_norm(node, graph, values)["output"]]


def layer_norm_inner(node: Node, graph: Graph, values: Values, rounding: str) -> dict[str, Array]:
    found = layer_norm(node, graph, values)
    return {node.attrs[role]: found[role] for role in ROLES}


def layer_norm_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    """Bounds of the output and of the inner tensors from those of the input."""
    low, high = interval(required(node, graph, 0))
    span, limit = high - low, sqrt(normalised_count(node, graph))
    epsilon = node.attrs.get("epsilon", DEFAULT_EPSILON)
    gamma = max(abs(end) for end in interval(required(node, graph, 1)))
    beta = input_tensor(node, graph, 2)
    offset = max(abs(end) for end in interval(beta)) if beta is not None else 0.0
    bounds = {
        "mean": (low, high),
        "centred": (-span, span),
        "square": (0.0, span * span),
        "variance": (0.0, span * span / 4),
        "variance_epsilon": (epsilon, span * span / 4 + epsilon),
        "deviation": (sqrt(epsilon), sqrt(span * span / 4 + epsilon)),
        "normalised": (-limit, limit),
        "scaled": (-limit * gamma, limit * gamma),
    }
    named = {node.attrs[role]: bounds[role] for role in ROLES if role in node.attrs}
    return {**named, node.outputs[0]: (-limit * gamma - offset, limit * gamma + offset)}


def check_row_length(node: Node, graph: Graph) -> str | None:
    found = normalised_count(node, graph)
    return None if 0 < found <= LONGEST_ROW else str(found)


def check_constants(node: Node, graph: Graph) -> str | None:
    variable = [name for name in node.inputs[1:] if name and not is_constant(graph.tensors[name])]
    return f"'{variable[0]}'" if variable else None


def check_epsilon(node: Node, graph: Graph) -> str | None:
    """In the fraction bits of the squares."""
    bits = getattr(required(node, graph, 0).type, "frac", 0)
    epsilon = float(node.attrs.get("epsilon", DEFAULT_EPSILON))
    largest = epsilon * 2.0 ** (2 * bits - square_shift(normalised_count(node, graph)))
    return None if largest < LARGEST_EPSILON else f"{epsilon:.3g} for an input with {bits} fraction bits"


LARGEST_EPSILON = 2.0**61
EPSILON_LIMIT = Limit("epsilon is less than 2**61 units of the squares", check_epsilon)
LIMITS = (
    FLOAT_TENSORS,
    EPSILON_LIMIT,
    Limit("1 to 2**20 elements are normalised together", check_row_length),
    Limit("gamma and beta are constants", check_constants),
)
ROWS = (
    Operator("LayerNormalization", "layer_norm", LIMITS, layer_norm_reference, layer_norm_intervals),
    Operator(
        name="LayerNormDecomposed",
        family="layer_norm",
        limits=LIMITS,
        reference=layer_norm_reference,
        intervals=layer_norm_intervals,
        inner=layer_norm_inner,
        formats=layer_norm_formats,
    ),
)
