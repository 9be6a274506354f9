"""Instructions that fold many values into one: Reduce (in a PE) and AllReduce (over neighbouring columns)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from epu.simulator.instruction import Cost, Instruction, ceil_div
from epu.simulator.machine import ALU_COST, Machine
from epu.simulator.operands import SIZES, Grid, Lrm

FOLDS = {"sum": "add", "max": "max", "min": "min"}


@dataclass(frozen=True)
class Reduce(Instruction):
    """Fold ``src`` over the last ``n_reduced`` loops into ``dst``, which has strides for the leading loops only.

    Sums are of 64 bits and wrap; the write keeps the low bits of ``dst.dtype``. ``accumulate`` folds with what ``dst`` holds.
    """

    op: str
    grid: Grid
    loops: tuple[int, ...]
    n_reduced: int
    dst: Lrm
    src: Lrm
    accumulate: bool = False
    opcode: ClassVar[int] = 7

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

    def cycles(self, machine: Machine) -> Cost:
        """group - 1 hops, each a neighbour move of every value and a fold."""
        steps = (self.group - 1) * prod(self.loops)
        words = ceil_div(SIZES[self.src.dtype], machine.port_bytes)
        return Cost(data_array=steps * words, compute=steps * _fold_cost(self.op, self.src, self.dst))


def _fold_cost(op: str, src: Lrm, dst: Lrm) -> int:
    return ALU_COST[FOLDS[op]]["i64" in (src.dtype, dst.dtype)]
