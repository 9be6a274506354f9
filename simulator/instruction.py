"""What every instruction is: a frozen dataclass with limits, footprint, meaning and cost.

Its docstring is its sentence in the manual. ``plan`` is the meaning on whole tiles; the step engine has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from epu.simulator.layout import bounds
from epu.simulator.listing import instruction_text
from epu.simulator.machine import Machine
from epu.simulator.memory import Memories
from epu.simulator.operands import SIZES, Grid, Lrm, Ocm


@dataclass(frozen=True)
class Cost:
    """Cycles of one instruction by class."""

    compute: int = 0
    mac: int = 0
    data_array: int = 0
    data_ocm: int = 0
    data_external: int = 0
    overlap: int = 0

    @property
    def total(self) -> int:
        """Cycles from start to end where nothing else is in the way."""
        return self.compute + self.mac + self.data_array + self.data_ocm + self.data_external - self.overlap


class Access(NamedTuple):
    """Bytes an instruction touches: strided elements in one memory; for LRM, the same in each of height x width PEs."""

    operand: str
    writes: bool
    space: str
    addr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    size: int
    height: int = 0
    width: int = 0
    align: int = 1

    @property
    def span(self) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
        """The strided area within its memory."""
        return self[3:7]

    @property
    def bounds(self) -> tuple[int, int]:
        """First byte and the one after the last."""
        return bounds(*self.span)


Limits = Iterator[tuple[str, str]]  # (operand, sentence that names the limit and the value found)


@dataclass(frozen=True)
class Instruction:
    """Base of all instructions."""

    opcode: ClassVar[int] = -1

    def __str__(self) -> str:
        return instruction_text(self)

    @property
    def channel(self) -> str:
        """The channel an asynchronous instruction occupies: "in" or "out" (external), "port" (OCM); empty where synchronous."""
        return ""

    def limits(self, machine: Machine) -> Limits:
        """The limits this instruction breaks, memory bounds apart."""
        raise NotImplementedError

    def accesses(self) -> tuple[Access, ...]:
        """All bytes read, then all bytes written."""
        raise NotImplementedError

    def plan(self, memories: Memories) -> Callable[[], None]:
        """A function that executes this instruction on ``memories``; only what repeats is left for it."""
        raise NotImplementedError

    def cycles(self, machine: Machine) -> Cost:
        """Cycles of this instruction by class."""
        raise NotImplementedError


def ceil_div(a: int, b: int) -> int:
    """Quotient rounded up."""
    return -(-a // b)


def lrm_access(name: str, writes: bool, grid: Grid, loops: Sequence[int], operand: Lrm) -> Access:
    """Footprint of an LRM operand."""
    size = SIZES[operand.dtype]
    shape, strides = tuple(loops), operand.strides
    return Access(name, writes, "lrm", operand.addr, shape, strides, size, grid.height, grid.width, size)


def ocm_access(name: str, writes: bool, grid: Grid, loops: Sequence[int], operand: Ocm) -> Access:
    """Footprint of an OCM operand; row or column digits without strides stay at one address."""
    rows, cols = digit_pairs(grid.rows, operand.row_strides), digit_pairs(grid.cols, operand.col_strides)
    size = SIZES[operand.dtype]
    shape = (*(n for n, _ in rows + cols), *loops)
    strides = (*(s for _, s in rows + cols), *operand.strides)
    return Access(name, writes, "ocm", operand.addr, shape, strides, size, align=size)


def digit_pairs(digits: tuple[int, ...], strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """(count, stride) of each digit; no strides at all means stride 0."""
    return list(zip(digits, strides or (0,) * len(digits)))


def grid_limits(grid: Grid, machine: Machine) -> Limits:
    """Limits of the active PEs."""
    if any(n < 1 for n in (*grid.rows, *grid.cols)):
        yield "grid", f"each digit must be at least 1, found {grid.rows} x {grid.cols}"
    if grid.height > machine.rows or grid.width > machine.cols:
        found = f"{grid.height} x {grid.width}"
        yield "grid", f"at most {machine.rows} x {machine.cols} PEs, found {found}; use smaller digits"


def loop_limits(loops: Sequence[int], name: str = "loops") -> Limits:
    """Limits of loop counts."""
    if any(n < 1 for n in loops):
        yield name, f"each count must be at least 1, found {tuple(loops)}"


def lrm_limits(name: str, operand: object | None, rank: int, dtypes: Sequence[str] = tuple(SIZES)) -> Limits:
    """Limits of an LRM operand with one stride per loop."""
    if not isinstance(operand, Lrm):
        yield name, f"must be an Lrm operand, found {operand!r}"
        return
    if operand.dtype not in dtypes:
        yield name, f"dtype must be one of {', '.join(dtypes)}, found {operand.dtype!r}"
    if len(operand.strides) != rank:
        yield name, f"must have {rank} strides, one per loop, found {len(operand.strides)}"


def ocm_limits(name: str, operand: object, grid: Grid, rank: int, dtypes: Sequence[str] = tuple(SIZES)) -> Limits:
    """Limits of an OCM operand; row and column strides may be left out altogether."""
    if not isinstance(operand, Ocm):
        yield name, f"must be an Ocm operand, found {operand!r}"
        return
    if operand.dtype not in dtypes:
        yield name, f"dtype must be one of {', '.join(dtypes)}, found {operand.dtype!r}"
    for kind, found, want in (("row", operand.row_strides, grid.rows), ("column", operand.col_strides, grid.cols)):
        if found and len(found) != len(want):
            yield name, f"must have {len(want)} {kind} strides, one per digit, found {len(found)}"
    if len(operand.strides) != rank:
        yield name, f"must have {rank} strides, one per loop, found {len(operand.strides)}"


def tag_limits(tag: int, low: int) -> Limits:
    """Limits of a transfer tag."""
    if not low <= tag <= 255:
        yield "tag", f"must be {low} to 255, found {tag}"


def same_dtype(dst: object, src: object) -> Limits:
    """Transfers do not convert."""
    left, right = getattr(dst, "dtype", None), getattr(src, "dtype", None)
    if left != right:
        yield "dst", f"dtype must equal that of src ({right}), found {left}; convert with Alu mov"
