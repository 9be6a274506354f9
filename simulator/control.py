"""Instructions that only steer: Wait and Halt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from epu.simulator.instruction import Access, Cost, Instruction, Limits, tag_limits
from epu.simulator.machine import Machine
from epu.simulator.memory import Memories


class _Steering(Instruction):
    """Touches no memory and takes no cycles of its own."""

    def accesses(self) -> tuple[Access, ...]:
        """Nothing."""
        return ()

    def plan(self, memories: Memories) -> Callable[[], None]:
        """Nothing: the stall is the clock's business."""
        return _nothing

    def cycles(self, machine: Machine) -> Cost:
        """None; a stall counts as the busy channel's time."""
        return Cost()


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Wait(_Steering):
    """Stall until every transfer issued with ``tag`` is done."""

    tag: int
    opcode: ClassVar[int] = 2

    def limits(self, machine: Machine) -> Limits:
        """Tag range."""
        yield from tag_limits(self.tag, 1)


@dataclass(frozen=True)
class Halt(_Steering):
    """Stall until every transfer is done, then stop. The last instruction of each program."""

    opcode: ClassVar[int] = 11

    def limits(self, machine: Machine) -> Limits:
        """None."""
        yield from ()
