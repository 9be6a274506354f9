"""Instructions of a kernel before its addresses are known: operands relative to the kernel's parameters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from epu.simulator.instruction import Instruction
from epu.simulator.operands import Grid, Imm, Lrm, Ocm

from .nest import Key, Loop

SCRATCH = ""  # name of the kernel's OCM scratch among its parameters


class LongCode(Exception):
    """A kernel has more instructions than its compiler was asked to make; nobody but the compiler sees it."""


@dataclass(frozen=True)
class ParamOcm(Ocm):
    """OCM operand relative to the base of a kernel parameter (or its scratch)."""

    param: str = SCRATCH


@dataclass(frozen=True)
class ScalarImm(Imm):
    """Immediate whose value is a scalar parameter of the kernel."""

    param: str = ""


@dataclass(frozen=True)
class TapPoint:
    """After instruction ``pc`` the operand holds elements of stage ``stage`` (strides in elements of its tensor)."""

    stage: str
    pc: int
    grid: Grid
    loops: tuple[int, ...]
    operand: Lrm
    offset: int
    row_strides: tuple[int, ...]
    col_strides: tuple[int, ...]
    strides: tuple[int, ...]


class LrmHolding(NamedTuple):
    """Bytes [addr, addr + size) of each PE's LRM that buffer ``stage`` holds, from instruction ``first`` to before ``last``."""

    stage: str
    addr: int
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class KernelCode:
    """Instructions of one kernel relative to its parameters, what can be observed where, memory it needs.

    ``lrm``: who holds which bytes of LRM, for reports; of the tiles' equal holdings the first.
    """

    instructions: tuple[Instruction, ...]
    taps: tuple[TapPoint, ...]
    scratch_bytes: int
    peak_lrm: int
    lrm: tuple[LrmHolding, ...] = ()


@dataclass
class LrmValue:
    """An LRM operand with its byte stride for each loop variable it depends on."""

    operand: Lrm
    strides: dict[Key, int] = field(default_factory=dict)
    temporary: int = 0  # bytes to give back, 0 where it is not a temporary

    def over(self, loops: tuple[Loop, ...]) -> Lrm:
        """The operand for an instruction with these loops."""
        return replace(self.operand, strides=tuple(self.strides.get(loop.var, 0) for loop in loops))


@dataclass(frozen=True)
class Constant:
    """An immediate operand, the same under any loops."""

    operand: Imm

    def over(self, loops: tuple[Loop, ...]) -> Imm:
        """The immediate."""
        return self.operand


def extents(loops: tuple[Loop, ...]) -> tuple[int, ...]:
    """Loop counts."""
    return tuple(loop.extent for loop in loops)
