"""Kernel that finds where a row's largest or smallest value lies (docs/arithmetic.md, ArgMax)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from epu.simulator.machine import Machine

from .folds import FoldShape, fold_tiling
from .kernel import Kernel, Param
from .rowwise import i64
from .tvm_api import te, tir

PLACE_BITS = 31  # of a key below its value


@dataclass(frozen=True)
class ArgShape:
    """``smallest``: ArgMin. ``last``: of equal values the last one wins, else the first."""

    fold: FoldShape
    smallest: bool
    last: bool


def arg_extreme(a: ArgShape) -> Kernel:
    """X [rows, length], rank int32 [length] → Y int64 [rows]; ``rank`` is what decides between equal values, the largest
    wins: the place itself, or ``length - 1 - place``."""
    s = a.fold
    x, rank = te.placeholder((s.rows, s.length), s.dtype, name="X"), te.placeholder((s.length,), "int32", name="rank")
    axis = te.reduce_axis((0, s.length), "n")

    def key(m: Any) -> Any:
        value, place = i64(x[m, axis]) << i64(PLACE_BITS), i64(rank[axis])
        return place - value if a.smallest else value + place

    total = te.compute((s.rows,), lambda m: te.max(key(m), axis=axis), name="total")
    y = te.compute((s.rows,), lambda m: _place(a, total[m] & i64((1 << PLACE_BITS) - 1)), name="Y")
    return Kernel(
        "fold",
        ("arg_extreme", a),
        (
            Param("X", "input", (s.rows, s.length), s.dtype),
            Param("rank", "constant", (s.length,), "int32"),
            Param("Y", "output", (s.rows,), "int64"),
        ),
        {"X": x, "rank": rank, "total": total, "Y": y},
        {"X": ("m", "n"), "rank": ("n",), "total": ("m",), "Y": ("m",)},
        ("total", "Y"),
        lambda machine, budget: arg_tiling(s, machine, budget),
        reduced={"total": ("n",)},
    )


def _place(a: ArgShape, rank: Any) -> Any:
    return rank if a.last else tir.const(a.fold.length - 1, "int64") - rank


def arg_tiling(s: FoldShape, machine: Machine, budget: int) -> Any:
    """As a fold; the keys take eight bytes each."""
    return fold_tiling(s, machine, max(1, budget // 2))
