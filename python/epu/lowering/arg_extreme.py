"""ArgMax, ArgMin."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from epu.graph import Graph, Node
from epu.lowering.lowered import Lowered, dtype_of, operand
from epu.lowering.split import Ranges, Splits
from epu.operators.reduce_mean import reduced_count

if TYPE_CHECKING:
    from epu.tir_schedules.arg_extreme import ArgShape


def lower_arg_extreme(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.arg_extreme import ArgShape, arg_extreme
    from epu.tir_schedules.folds import FoldShape

    x, count = operand(node, graph, 0), reduced_count(node, graph)
    last = bool(node.attrs.get("select_last_index", 0))
    shape = ArgShape(FoldShape(prod(x.shape) // count, count, dtype_of(x)), node.op == "ArgMin", last)
    places = np.arange(count, dtype=np.int32)
    constants = {"rank": places if last else np.ascontiguousarray(places[::-1])}
    return Lowered(node, arg_extreme(shape), {"X": x.name}, {"Y": node.outputs[0]}, constants, splits=_by_rows(shape))


def _by_rows(whole: ArgShape) -> Splits:
    from epu.tir_schedules.arg_extreme import arg_extreme

    def smaller(ranges: Ranges) -> ArgShape:
        rows = ranges["m"][1] - ranges["m"][0] if "m" in ranges else whole.fold.rows
        return replace(whole, fold=replace(whole.fold, rows=rows))

    return Splits({"m": whole.fold.rows}, smaller, arg_extreme)
