"""What every instruction is: a frozen dataclass with a cost; its docstring is its sentence in the manual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from epu.simulator.machine import Machine


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


@dataclass(frozen=True)
class Instruction:
    """Base of all instructions."""

    opcode: ClassVar[int] = -1

    def cycles(self, machine: Machine) -> Cost:
        """Cycles of this instruction by class."""
        raise NotImplementedError


def ceil_div(a: int, b: int) -> int:
    """Quotient rounded up."""
    return -(-a // b)
