"""Instructions that fold many values into one: Reduce (in a PE) and AllReduce (over neighbouring columns)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from epu.simulator.fixed_point import NUMPY_DTYPE, narrow, sum24
from epu.simulator.instruction import (
    Access,
    Cost,
    Instruction,
    Limits,
    ceil_div,
    grid_limits,
    loop_limits,
    lrm_access,
    lrm_limits,
)
from epu.simulator.layout import merge
from epu.simulator.machine import ALU_COST, Machine
from epu.simulator.memory import Memories
from epu.simulator.operands import SIZES, Grid, Lrm

FOLD_ALU = {"sum": "add", "max": "max", "min": "min", "sum24": "add"}
ROUNDED_SUM = "sum24"  # in order, each addend and each sum rounded to 24 significant bits
FOLD_UFUNC: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def _fold_cost(op: str, src: Lrm, dst: Lrm) -> int:
    wide = "i64" in (src.dtype, dst.dtype)
    return ALU_COST[FOLD_ALU[op]][wide] + (ALU_COST["round24"][wide] if op == ROUNDED_SUM else 0)


def _fold_limits(op: str, allowed: Iterable[str] = FOLD_ALU) -> Limits:
    if op not in allowed:
        yield "op", f"must be one of {', '.join(allowed)}, found {op!r}"


def _fold_dtype(src: Lrm, dst: Lrm) -> Any:
    """Sums modulo the destination's width are the same in any width that holds it; comparisons need all values."""
    return NUMPY_DTYPE["i64" if "i64" in (src.dtype, dst.dtype) else "i32"]


@dataclass(frozen=True)
class Reduce(Instruction):
    """Fold ``src`` over the last ``n_reduced`` loops into ``dst``, which has strides for the leading loops only.

    Sums are of 64 bits and wrap; the write keeps the low bits of ``dst.dtype``. ``accumulate`` folds with what ``dst`` holds.
    "sum24" adds in the order of the loops, and rounds each addend and each sum to 24 significant bits, half to even, as
    float32 does; a result beyond 64 bits is the nearest that they hold.
    """

    op: str
    grid: Grid
    loops: tuple[int, ...]
    n_reduced: int
    dst: Lrm
    src: Lrm
    accumulate: bool = False
    opcode: ClassVar[int] = 7

    @property
    def leading(self) -> tuple[int, ...]:
        """The loops that remain."""
        return self.loops[: len(self.loops) - self.n_reduced]

    def limits(self, machine: Machine) -> Limits:
        """Operation, grid, ranks."""
        yield from _fold_limits(self.op)
        yield from grid_limits(self.grid, machine)
        yield from loop_limits(self.loops)
        if not 1 <= self.n_reduced <= len(self.loops):
            yield "n_reduced", f"must be 1 to the number of loops ({len(self.loops)}), found {self.n_reduced}"
        yield from lrm_limits("dst", self.dst, len(self.leading))
        yield from lrm_limits("src", self.src, len(self.loops))

    def accesses(self) -> tuple[Access, ...]:
        """src read; dst read where it accumulates; dst written."""
        read = lrm_access("src", False, self.grid, self.loops, self.src)
        old = lrm_access("dst", False, self.grid, self.leading, self.dst)
        return (read, *([old] if self.accumulate else []), old._replace(writes=True))

    def plan(self, memories: Memories) -> Callable[[], None]:
        """One NumPy reduction over the folded axes, fused where they are contiguous."""
        counts, (steps,) = merge(self.loops[len(self.leading) :], [self.src.strides[len(self.leading) :]])
        source_loops = (*self.leading, *counts)
        strides = (*self.src.strides[: len(self.leading)], *steps)
        src = memories.columns_view(self.grid, source_loops, Lrm(self.src.addr, self.src.dtype, strides))
        dst = memories.columns_view(self.grid, self.leading, self.dst)
        axes = tuple(range(2 + len(self.leading), src.ndim))
        if self.op == ROUNDED_SUM:
            return lambda: self._sum_in_order(src, dst)
        ufunc, dtype = FOLD_UFUNC[self.op], _fold_dtype(self.src, self.dst)
        wide = memories.scratch(0, dtype, dst.shape)

        def run() -> None:
            values = ufunc.reduce(src, axis=axes, dtype=dtype, out=wide)
            if self.accumulate:
                values = ufunc(values, dst, dtype=dtype, casting="unsafe")
            narrow(dst, values, self.dst.dtype, saturate=False)

        return run

    def _sum_in_order(self, src: NDArray[Any], dst: NDArray[Any]) -> None:
        addends = src.reshape(*dst.shape, -1)
        if self.accumulate:
            addends = np.concatenate([dst[..., None], addends], axis=-1, dtype=np.int64)
        narrow(dst, sum24(addends)[..., 0], self.dst.dtype, saturate=False)

    def cycles(self, machine: Machine) -> Cost:
        """One fold per element."""
        return Cost(compute=prod(self.loops) * _fold_cost(self.op, self.src, self.dst))


@dataclass(frozen=True)
class AllReduce(Instruction):
    """Fold each value over aligned groups of ``group`` neighbouring columns; every PE of the group gets the result."""

    op: str
    grid: Grid
    loops: tuple[int, ...]
    dst: Lrm
    src: Lrm
    group: int
    opcode: ClassVar[int] = 8

    def limits(self, machine: Machine) -> Limits:
        """Operation, grid, ranks, group size."""
        yield from _fold_limits(self.op, FOLD_UFUNC)  # which values meet first is left to the array
        yield from grid_limits(self.grid, machine)
        yield from loop_limits(self.loops)
        if self.group < 1 or self.grid.width % self.group:
            yield "group", f"must divide the active columns ({self.grid.width}), found {self.group}"
        yield from lrm_limits("dst", self.dst, len(self.loops))
        yield from lrm_limits("src", self.src, len(self.loops))

    def accesses(self) -> tuple[Access, ...]:
        """src read, dst written."""
        read = lrm_access("src", False, self.grid, self.loops, self.src)
        return read, lrm_access("dst", True, self.grid, self.loops, self.dst)

    def plan(self, memories: Memories) -> Callable[[], None]:
        """One NumPy reduction over the columns of each group, spread to all of them."""
        grid = Grid((self.grid.height,), (self.grid.width // self.group, self.group))
        src = memories.lrm_view(grid, self.loops, self.src)
        dst = memories.lrm_view(grid, self.loops, self.dst)
        ufunc, dtype = FOLD_UFUNC[self.op], _fold_dtype(self.src, self.dst)

        def run() -> None:
            values = ufunc.reduce(src, axis=2, dtype=dtype, keepdims=True)
            narrow(dst, values, self.dst.dtype, saturate=False)

        return run

    def cycles(self, machine: Machine) -> Cost:
        """group - 1 hops, each a neighbour move of every value and a fold."""
        steps = (self.group - 1) * prod(self.loops)
        words = ceil_div(SIZES[self.src.dtype], machine.port_bytes)
        return Cost(data_array=steps * words, compute=steps * _fold_cost(self.op, self.src, self.dst))
