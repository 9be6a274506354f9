"""LayerNormalization in nodes: LayerNormMean, LayerNormBits, LayerNormRoot, LayerNormScale. With rounding "exact" the same bytes
as LayerNormalization, with "ort" the float32 steps of ONNX Runtime's kernel (docs/arithmetic.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epu.constants import fixed_constant
from epu.elementary import UINT32_MAX, normal_sqrt, reciprocal
from epu.graph import Graph, Node
from epu.lanes import mulr, round24, rshr, saturate, sum24
from epu.operators.layer_norm import (
    DEFAULT_EPSILON,
    EPSILON_LIMIT,
    centre,
    layer_norm_format,
    layer_norm_intervals,
    mean_of_squares,
    normalised_axes,
    normalised_count,
    scale_and_shift,
    variance,
)
from epu.operators.reduce_mean import mean, mean_constants, mean_intervals, mean_of_sum
from epu.operators.row import FLOAT_TENSORS, Array, Interval, Ints, Limit, Operator, Values, frac, required, value

ORT = "ort"


def flat_rows(node: Node, graph: Graph, values: Values) -> tuple[Ints, tuple[int, ...]]:
    """The first input as rows, and the shape of one value per row."""
    x = required(node, graph, 0)
    axes = normalised_axes(node, graph)
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
    return value(node, values, 0).reshape(-1, normalised_count(node, graph)), kept


def mean_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    f = frac(required(node, graph, 0))
    constants = mean_constants(normalised_count(node, graph), f, f)
    rows, kept = flat_rows(node, graph, values)
    if rounding == ORT:
        return [saturate(round24(mean_of_sum(sum24(rows), constants).astype(np.int64)), "int32").reshape(kept)]
    return [mean(rows, (-1,), constants).reshape(kept)]


@dataclass(frozen=True)
class SpreadFormat:
    """Shift of the squares, fraction bits of their sum, and epsilon in those."""

    square_shift: int
    wide: int
    epsilon: int


def spread_format(node: Node, graph: Graph, rounding: str) -> SpreadFormat:
    form = layer_norm_format(node, graph)
    x = frac(required(node, graph, 0))
    wide = 2 * x - form.square_shift if rounding == ORT else form.wide
    epsilon = float(np.float32(node.attrs.get("epsilon", DEFAULT_EPSILON)))
    return SpreadFormat(form.square_shift, wide, fixed_constant(epsilon, wide))


def spread_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    rows, kept = flat_rows(node, graph, values)
    middle = value(node, values, 1).reshape(-1, 1)
    form, count = spread_format(node, graph, rounding), normalised_count(node, graph)
    if rounding == ORT:
        square = round24(mulr(rows, rows, form.square_shift))
        mean_square = round24(mean_of_squares(sum24(square), count))
        safe = round24(round24(mean_square - round24(mulr(middle, middle, form.square_shift))) + form.epsilon)
        k, v, root = normal_sqrt(np.maximum(safe, 1))
        deviation = round24(mulr(root, v, 32))
        root = reciprocal(np.minimum(deviation << 2, UINT32_MAX))
    else:
        d = centre(rows, frac(required(node, graph, 0)), middle, layer_norm_format(node, graph)).astype(np.int64)
        square = mulr(d, d, form.square_shift)
        k, _, root = normal_sqrt(np.maximum(variance(square, (-1,), count) + form.epsilon, 1))
    return [saturate(k if node.op == "LayerNormBits" else root, "int32").reshape(kept)]


def normal_shift(node: Node, graph: Graph, rounding: str) -> int:
    """What, plus k, shifts ``D * R`` to the normalised values."""
    form = layer_norm_format(node, graph)
    return form.centred - spread_format(node, graph, rounding).wide // 2 + 30 - form.normalised


def scale_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    raw, middle, k, root = (value(node, values, index) for index in range(4))
    x, form = required(node, graph, 0), layer_norm_format(node, graph)
    amount = normal_shift(node, graph, rounding) + k
    if rounding != ORT:
        z = saturate(mulr(centre(raw, frac(x), middle, form).astype(np.int64), root, amount), "int32")
        return [scale_and_shift(norm_view(node), graph, values, z, form)["output"]]
    d = saturate(rshr(round24(raw - middle), 1), "int32").astype(np.int64)
    z = saturate(round24(mulr(d, root, amount)), "int32").astype(np.int64)
    return [float_scale(node, graph, values, z)]


def float_scale(node: Node, graph: Graph, values: Values, z: Ints) -> NDArray[np.int32]:
    """``round24(gamma * z)``, then ``round24(… + beta)``."""
    form, gamma, out = layer_norm_format(node, graph), required(node, graph, 4), frac_out(node, graph)
    scaled = saturate(round24(mulr(z, value(node, values, 4), form.normalised + frac(gamma) - out)), "int32")
    if len(node.inputs) < 6:
        return scaled
    beta = rshr(value(node, values, 5), frac(required(node, graph, 5)) - out)
    return saturate(round24(scaled.astype(np.int64) + beta), "int32")


def frac_out(node: Node, graph: Graph) -> int:
    return frac(graph.tensors[node.outputs[0]])


def norm_view(node: Node) -> Node:
    """The LayerNormalization that a LayerNormScale ends: x, gamma, beta."""
    return Node(node.name, "LayerNormalization", [node.inputs[0], *node.inputs[4:]], node.outputs, node.attrs)


def mean_formats(node: Node, graph: Graph) -> dict[str, int]:
    """The mean as the input."""
    return {node.outputs[0]: frac(required(node, graph, 0))}


def spread_formats(node: Node, graph: Graph) -> dict[str, int]:
    """Plain integers."""
    return dict.fromkeys(node.outputs, 0)


def spread_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return {node.outputs[0]: (0.0, 32.0 if node.op == "LayerNormBits" else 2.0**31)}


def scale_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return layer_norm_intervals(norm_view(node), graph)


def check_constants(node: Node, graph: Graph) -> str | None:
    variable = [name for name in node.inputs[4:] if graph.tensors[name].data is None]
    return f"'{variable[0]}'" if variable else None


SCALE_LIMITS = (FLOAT_TENSORS, Limit("gamma and beta are constants", check_constants))
ROWS = (
    Operator("LayerNormMean", "fold", (FLOAT_TENSORS,), mean_reference, mean_intervals, formats=mean_formats),
    *(
        Operator(
            name, "fold", (FLOAT_TENSORS, EPSILON_LIMIT), spread_reference, spread_intervals, formats=spread_formats
        )
        for name in ("LayerNormBits", "LayerNormRoot")
    ),
    Operator("LayerNormScale", "elementwise", SCALE_LIMITS, scale_reference, scale_intervals),
)
