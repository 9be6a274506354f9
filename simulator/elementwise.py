"""Element by element instructions on LRM: Alu and Lut."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Optional

from epu.simulator.instruction import Cost, Instruction
from epu.simulator.machine import ALU_COST, ALU_COST_ADDEND, ALU_COST_SATURATE, LUT_COST, Machine
from epu.simulator.operands import Grid, Imm, Lrm, Source

WIDE_LOW, WIDE_HIGH = -(1 << 31), (1 << 32) - 1  # an Imm within these bounds counts as 32 bits


def is_wide(operand: Optional[Source]) -> bool:
    """Whether the operand takes 64 bits in the data path."""
    if isinstance(operand, Imm):
        return not WIDE_LOW <= operand.value <= WIDE_HIGH
    return operand is not None and operand.dtype == "i64"


@dataclass(frozen=True)
class Alu(Instruction):
    """``dst = op(a, b, c, d)`` for each element of the loops on each active PE.

    Computed in 64-bit integers that wrap; the write keeps the low bits of ``dst.dtype``, or clips to its range where
    ``saturate``. Operands that overlap ``dst`` must be the same elements at the same place.
    """

    op: str
    grid: Grid
    loops: tuple[int, ...]
    dst: Lrm
    a: Source
    b: Optional[Source] = None
    c: Optional[Source] = None
    d: Optional[Source] = None
    saturate: bool = False
    opcode: ClassVar[int] = 5

    def cycles(self, machine: Machine) -> Cost:
        """Elements of one PE times the cost of the operation; a plain LRM -> LRM mov counts as array data movement."""
        per_element = alu_cost(self)
        total = prod(self.loops) * per_element
        if self.op == "mov" and isinstance(self.a, Lrm):
            return Cost(data_array=total)
        return Cost(compute=total)


def alu_cost(alu: Alu) -> int:
    """Cycles per element: table entry by width, plus addend, plus saturation."""
    wide = any(is_wide(each) for each in (alu.dst, alu.a, alu.b, alu.c, alu.d))
    if alu.op in ("mul", "mulr", "mulrf"):  # the product's width counts, not that of the result
        wide = is_wide(alu.a) or is_wide(alu.b)
    return ALU_COST[alu.op][wide] + ALU_COST_ADDEND * (alu.d is not None) + ALU_COST_SATURATE * alu.saturate


@dataclass(frozen=True)
class Lut(Instruction):
    """``dst = table[index]``: table of ``entries`` elements at ``table.addr`` of the PE's own LRM.

    An index outside 0..entries-1 is a fault.
    """

    grid: Grid
    loops: tuple[int, ...]
    dst: Lrm
    table: Lrm
    index: Lrm
    entries: int
    opcode: ClassVar[int] = 6

    def cycles(self, machine: Machine) -> Cost:
        """One look-up per element of one PE."""
        return Cost(compute=prod(self.loops) * LUT_COST)
