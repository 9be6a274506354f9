"""Element by element instructions on LRM: Alu and Lut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from epu.simulator.errors import MachineFault
from epu.simulator.fixed_point import NUMPY_DTYPE, RANGE, narrow
from epu.simulator.instruction import (
    Access,
    Cost,
    Instruction,
    Limits,
    grid_limits,
    loop_limits,
    lrm_access,
    lrm_limits,
)
from epu.simulator.lanes import Lanes, plan_lanes
from epu.simulator.machine import ALU_COST, ALU_COST_ADDEND, ALU_COST_SATURATE, LUT_COST, Machine
from epu.simulator.memory import Array, Memories
from epu.simulator.operands import SIZES, Grid, Imm, Lrm, Source

WIDE_LOW, WIDE_HIGH = -(1 << 31), (1 << 32) - 1  # an Imm within these bounds counts as 32 bits
ARITY = {"mov": "a", "round24": "a", "clz": "a", "sel": "abc", "mulr": "abc", "mulrf": "abc"}  # all others: a, b
TAKES_ADDEND = ("mulr", "mulrf")
ALU_SENTENCE = {  # of the manual; all values are 64-bit integers that wrap
    "mov": "a",
    "add": "a + b",
    "sub": "a - b",
    "mul": "a * b",
    "and": "bitwise a and b",
    "or": "bitwise a or b",
    "xor": "bitwise a exclusive-or b",
    "min": "the smaller of a and b",
    "max": "the larger of a and b",
    "lt": "1 where a < b, else 0",
    "le": "1 where a <= b, else 0",
    "eq": "1 where a = b, else 0",
    "ne": "1 where a differs from b, else 0",
    "sel": "b where a is not 0, else c",
    "shl": "a * 2^b, b limited to 0..63",
    "shr": "a / 2^b rounded down, b limited to 0..63",
    "rshr": "a / 2^b rounded to nearest, ties to even, b limited to -63..63; below 0 a shift to the left",
    "mulr": "rshr(a * b, c) + d; without d, d = 0",
    "mulrf": "rshr(round24(round24(a) * b), c) + d: what float32 arithmetic gives",
    "round24": "a to the nearest integer of 24 significant bits, ties to even",
    "clz": "leading zeros of a as an unsigned 64-bit number; 64 for 0",
}
assert set(ALU_SENTENCE) == set(ALU_COST), "an ALU operation lacks its cost or its sentence"


def is_wide(operand: Source | None) -> bool:
    """Whether the operand takes 64 bits in the data path."""
    if isinstance(operand, Imm):
        return not WIDE_LOW <= operand.value <= WIDE_HIGH
    return operand is not None and operand.dtype == "i64"


@dataclass(frozen=True)
class Alu(Instruction):
    """``dst = op(a, b, c, d)`` for each element of the loops on each active PE.

    Computed in 64-bit integers that wrap; the write keeps the low bits of ``dst.dtype``, or clips to its range where
    ``saturate``. A source that overlaps ``dst`` must lie so that each element shares bytes with its own result only.
    """

    op: str
    grid: Grid
    loops: tuple[int, ...]
    dst: Lrm
    a: Source
    b: Source | None = None
    c: Source | None = None
    d: Source | None = None
    saturate: bool = False
    opcode: ClassVar[int] = 5

    @property
    def sources(self) -> dict[str, Source | None]:
        """Operands by name."""
        return {"a": self.a, "b": self.b, "c": self.c, "d": self.d}

    def limits(self, machine: Machine) -> Limits:
        """Operation, grid, ranks, which operands it takes."""
        yield from grid_limits(self.grid, machine)
        yield from loop_limits(self.loops)
        yield from lrm_limits("dst", self.dst, len(self.loops))
        if self.op not in ALU_COST:
            yield "op", f"must be one of {', '.join(ALU_COST)}, found {self.op!r}"
        needed = ARITY.get(self.op, "ab")
        for name, operand in self.sources.items():
            if (operand is None) != (name not in needed) and not (name == "d" and self.op in TAKES_ADDEND):
                yield name, f"{self.op} takes operands {', '.join(needed)}, found {name} = {operand!r}"
            elif isinstance(operand, Lrm):
                yield from lrm_limits(name, operand, len(self.loops))
            elif operand is not None:
                yield from _imm_limits(name, operand)

    def accesses(self) -> tuple[Access, ...]:
        """LRM sources read, dst written."""
        stored = ((name, each) for name, each in self.sources.items() if isinstance(each, Lrm))
        reads = (lrm_access(name, False, self.grid, self.loops, each) for name, each in stored)
        return (*reads, lrm_access("dst", True, self.grid, self.loops, self.dst))

    def plan(self, memories: Memories) -> Callable[[], None]:
        """See lanes."""
        lanes = Lanes(memories, self.grid, self.loops, [self.dst, self.a, self.b, self.c, self.d])
        return plan_lanes(self.op, self.dst, lanes, self.saturate)

    def cycles(self, machine: Machine) -> Cost:
        """Elements of one PE times the cost of the operation; a plain LRM -> LRM mov counts as array data movement."""
        total = prod(self.loops) * alu_cost(self)
        if self.op == "mov" and isinstance(self.a, Lrm) and not self.saturate:
            return Cost(data_array=total)
        return Cost(compute=total)


def _imm_limits(name: str, operand: object) -> Limits:
    low, high = RANGE["i64"]
    if not isinstance(operand, Imm):
        yield name, f"must be an Lrm or Imm operand, found {operand!r}"
    elif not low <= operand.value <= high:
        yield name, f"must be {low} to {high}, found {operand.value}"


def alu_cost(alu: Alu) -> int:
    """Cycles per element: table entry by width, plus addend, plus saturation."""
    wide = any(is_wide(each) for each in (alu.dst, *alu.sources.values()))
    if alu.op in ("mul", "mulr", "mulrf"):  # the width of the factors counts, not that of the result
        wide = is_wide(alu.a) or is_wide(alu.b)
    return ALU_COST[alu.op][wide] + ALU_COST_ADDEND * (alu.d is not None) + ALU_COST_SATURATE * alu.saturate


@dataclass(frozen=True)
class Lut(Instruction):
    """``dst = table[index]``: table of ``entries`` elements at ``table.addr`` of the PE's own LRM.

    An index outside 0..entries-1 is a fault. The write keeps the low bits of ``dst.dtype``.
    """

    grid: Grid
    loops: tuple[int, ...]
    dst: Lrm
    table: Lrm
    index: Lrm
    entries: int
    opcode: ClassVar[int] = 6

    def limits(self, machine: Machine) -> Limits:
        """Grid, ranks, table size."""
        yield from grid_limits(self.grid, machine)
        yield from loop_limits(self.loops)
        yield from lrm_limits("dst", self.dst, len(self.loops))
        yield from lrm_limits("index", self.index, len(self.loops))
        yield from lrm_limits("table", self.table, 0)
        if self.entries < 1:
            yield "entries", f"must be at least 1, found {self.entries}"

    def accesses(self) -> tuple[Access, ...]:
        """Whole table and index read, dst written."""
        size = SIZES[self.table.dtype]
        table = lrm_access("table", False, self.grid, (self.entries,), Lrm(self.table.addr, self.table.dtype, (size,)))
        index = lrm_access("index", False, self.grid, self.loops, self.index)
        return table, index, lrm_access("dst", True, self.grid, self.loops, self.dst)

    def plan(self, memories: Memories) -> Callable[[], None]:
        """Per block: index -> element number in the whole LRM array -> gather."""
        first = Lrm(self.table.addr, self.table.dtype, (0,) * len(self.loops))
        lanes = Lanes(memories, self.grid, self.loops, [self.dst, self.index, first])
        dtype = NUMPY_DTYPE[self.table.dtype]
        words = memories.lrm.view(dtype)
        steps = [self._bind(out, index, _number(words, table), words, memories) for out, index, table in lanes.blocks()]

        def run() -> None:
            for step in steps:
                step()

        return run

    def _bind(self, out: Array, index: Array, base: Array, words: Array, memories: Memories) -> Callable[[], None]:
        place = memories.scratch(0, np.int64, out.shape)
        found = memories.scratch(1, words.dtype, out.shape)
        high = self.entries - 1
        sure = self.index.dtype == "u8" and high >= RANGE["u8"][1]

        def step() -> None:
            np.copyto(place, index)
            if not sure and (np.minimum.reduce(place, axis=None) < 0 or np.maximum.reduce(place, axis=None) > high):
                raise lut_fault(high, place.min(), place.max())
            np.add(place, base, out=place)
            np.take(words, place, out=found, mode="clip")
            narrow(out, found, self.dst.dtype, saturate=False)

        return step

    def cycles(self, machine: Machine) -> Cost:
        """One look-up per element of one PE."""
        return Cost(compute=prod(self.loops) * LUT_COST)


def _number(words: Array, table: Array) -> Array:
    """Element number within ``words`` of each table start (a view of the same memory)."""
    shape, strides = table.shape, table.strides
    first = (table.__array_interface__["data"][0] - words.__array_interface__["data"][0]) // words.itemsize
    number = np.full((1,) * len(shape), first, np.int64)
    for axis, (count, stride) in enumerate(zip(shape, strides)):
        steps = np.arange(count, dtype=np.int64) * (stride // words.itemsize)
        number = number + steps.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return number


def lut_fault(high: int, low_found: int, high_found: int) -> MachineFault:
    """A look-up outside its table."""
    worst = low_found if low_found < 0 else high_found
    fault = MachineFault(f"look-up index must be 0 to {high}, found {worst}; clip the index or enlarge the table")
    fault.operand = "index"
    return fault
