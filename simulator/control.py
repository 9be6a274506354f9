"""Instructions that only steer: Wait and Halt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from epu.simulator.instruction import Cost, Instruction
from epu.simulator.machine import Machine


@dataclass(frozen=True)
class Wait(Instruction):
    """Stall until every transfer issued with ``tag`` is done."""

    tag: int
    opcode: ClassVar[int] = 2

    def cycles(self, machine: Machine) -> Cost:
        """None of its own; the stall is the channel's time."""
        return Cost()


@dataclass(frozen=True)
class Halt(Instruction):
    """Stall until every transfer is done, then stop. The last instruction of each program."""

    opcode: ClassVar[int] = 11

    def cycles(self, machine: Machine) -> Cost:
        """None of its own."""
        return Cost()
