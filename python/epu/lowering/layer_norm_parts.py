"""The nodes of a LayerNormalization of long rows, or with rounding "ort"."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from epu.constants import ceil_log2, inverse, is_power_of_two
from epu.elementary import RECIPROCAL_SEED, ROOT_SEED
from epu.graph import Graph, Node
from epu.lowering.functions import build_staged
from epu.lowering.lowered import Lowered, operand, result
from epu.lowering.rows import beta_constant
from epu.lowering.split import by_fields
from epu.operators.layer_norm import layer_norm_format, normalised_count
from epu.operators.layer_norm_parts import ORT, normal_shift, spread_format
from epu.operators.reduce_mean import mean_constants
from epu.operators.row import frac

if TYPE_CHECKING:
    from epu.tir_schedules.folds import FoldShape
    from epu.tir_schedules.kernel import Kernel


def lower_norm_mean(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules import folds
    from epu.tir_schedules.layer_norm_parts import norm_mean

    x, count = operand(node, graph, 0), normalised_count(node, graph)
    k = mean_constants(count, frac(x), frac(x))
    scalars = {"first": k.first} if not k.factor else {"first": k.first, "factor": k.factor, "shift": k.shift}
    shape = folds.FoldShape(prod(x.shape) // count, count)

    def family(each: FoldShape) -> Kernel:
        return norm_mean(each, rounding == ORT)

    splits = by_fields(shape, {"m": "rows"}, family)
    return Lowered(node, family(shape), {"X": x.name}, {"Y": node.outputs[0]}, {}, scalars, splits=splits)


def lower_norm_spread(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules import folds
    from epu.tir_schedules.layer_norm_parts import norm_spread

    x, mean, count = operand(node, graph, 0), operand(node, graph, 1), normalised_count(node, graph)
    form = spread_format(node, graph, rounding)
    scalars = {"square_shift": form.square_shift, "variance_first": ceil_log2(count), "epsilon": form.epsilon}
    scalars.update({} if rounding == ORT else {"x_shift": 1})
    if not is_power_of_two(count):
        factor, k = inverse(count)
        scalars.update(variance_factor=factor, variance_shift=k - ceil_log2(count))
    shape = folds.FoldShape(prod(x.shape) // count, count)
    seeds = (ROOT_SEED, RECIPROCAL_SEED) if node.op == "LayerNormRoot" else None

    def family(each: FoldShape) -> Kernel:
        return norm_spread(each, rounding == ORT, seeds)

    splits = by_fields(shape, {"m": "rows"}, family)
    inputs, outputs = {"X": x.name, "M": mean.name}, {"Y": node.outputs[0]}
    return Lowered(node, family(shape), inputs, outputs, {}, scalars, splits=splits)


def lower_norm_scale(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.layer_norm_parts import norm_scale

    roles = ("X", "M", "K", "R", "gamma", "beta")[: len(node.inputs)]
    operands = {role: operand(node, graph, index) for index, role in enumerate(roles)}
    form, y, ort = layer_norm_format(node, graph), result(node, graph), rounding == ORT
    shift = form.normalised + frac(operands["gamma"]) - frac(y)
    scalars = {"normal_shift": normal_shift(node, graph, rounding), "scale_shift": shift}
    scalars.update({} if ort else {"x_shift": 1})
    if "beta" in operands:
        data = beta_constant(node, operands["beta"], frac(y))
        operands["beta"] = replace(operands["beta"], data=np.asarray(data))
    has_beta = "beta" in operands
    name = f"norm_scale_{rounding}_{has_beta}"
    lowered = build_staged(node, graph, name, operands, lambda points: norm_scale(points, ort, has_beta), scalars)
    if has_beta:
        lowered.constants["beta"] = np.asarray(operands["beta"].data)
    return lowered
