"""Reductions of rows, and the parts of a long softmax."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from epu.constants import exp2_table
from epu.elementary import LN_2, LOG2_E, RECIPROCAL_SEED, ROOT_SEED
from epu.graph import Graph, Node
from epu.lowering.functions import build_staged
from epu.lowering.lowered import Lowered, dtype_of, operand, result
from epu.lowering.pointwise import build
from epu.lowering.split import by_fields
from epu.operators.reduce_mean import reduced_count
from epu.operators.reductions import norm_shifts, sum_shift
from epu.operators.row import frac

if TYPE_CHECKING:
    from epu.tir_schedules.folds import FoldShape
    from epu.tir_schedules.kernel import Kernel


def _fold(node: Node, graph: Graph, family: Callable[[FoldShape], Kernel], scalars: dict[str, int]) -> Lowered:
    from epu.tir_schedules.folds import FoldShape

    x = operand(node, graph, 0)
    count = x.shape[-1] if node.op.startswith("Softmax") else reduced_count(node, graph)
    shape = FoldShape(prod(x.shape) // count, count, dtype_of(x))
    splits = by_fields(shape, {"m": "rows"}, family)
    return Lowered(node, family(shape), {"X": x.name}, {"Y": node.outputs[0]}, {}, scalars, splits=splits)


def lower_extreme(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.folds import fold_extreme

    reducer = {"ReduceMax": "max", "ReduceMin": "min"}[node.op]
    return _fold(node, graph, lambda shape: fold_extreme(shape, reducer), {})


def lower_reduce_sum(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.folds import fold_sum

    return _fold(node, graph, fold_sum, {"shift": sum_shift(node, graph)})


def lower_norm(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.folds import fold_norm

    square, root = norm_shifts(node, graph)
    scalars = {"square_shift": square, "root_shift": root}
    return _fold(node, graph, lambda shape: fold_norm(shape, ROOT_SEED), scalars)


def lower_softmax_exp(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.intrinsics import sat
    from epu.tir_schedules.rowwise import exp_negative, i64

    x, top = operand(node, graph, 0), operand(node, graph, 1)

    def program(points: Any) -> None:
        gap = points.stage("gap", lambda *at: sat(i64(points["M"](*at)) - i64(points["X"](*at)), "int32"))
        e = exp_negative(points.stage, gap, points["EXP2"], points["exponent_shift"], LOG2_E, LN_2)
        points.stage("Y", lambda *at: e(*at))

    scalars, tables = {"exponent_shift": frac(x) + 4}, {"EXP2": exp2_table(256, 30)}
    return build_staged(node, graph, "softmax_exp", {"X": x, "M": top}, program, scalars, tables)


def lower_softmax_bits(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.folds import sum_bits

    return _fold(node, graph, sum_bits, {})


def lower_softmax_factor(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.folds import sum_inverse

    return _fold(node, graph, lambda shape: sum_inverse(shape, RECIPROCAL_SEED), {})


def lower_softmax_share(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.intrinsics import mulr, sat
    from epu.tir_schedules.rowwise import i64

    operands = {param: operand(node, graph, index) for index, param in enumerate(("E", "L", "R"))}

    def body(v: dict[str, Any]) -> Any:
        return sat(mulr(v["E"], v["R"], i64(v["L"]) + v["shift"]), "int32")

    return build(node, graph, "softmax_share", operands, body, {"shift": 30 - frac(result(node, graph))})
