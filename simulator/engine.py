"""The fast engine: whole tiles per NumPy call, timing from the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from epu.simulator.instruction import Instruction
from epu.simulator.memory import Array, Memories
from epu.simulator.operands import Grid, Lrm
from epu.simulator.program import Buffer, Program
from epu.simulator.timing import Clock, CycleCount


class FastEngine:
    """Memories, instructions bound to them, and the clock. Equal instructions are bound once."""

    def __init__(self, program: Program) -> None:
        self.memories = Memories(program.machine, program.ext_bytes)
        self._plans: dict[Instruction, Callable[[], None]] = {}
        self._used = False
        self.clock = Clock()
        machine = program.machine
        for instruction in program.code:
            self.clock.issue(instruction, instruction.cycles(machine))

    def start(self, poison: bool) -> None:
        """Begin a run; ``poison`` forgets what earlier runs left in memory."""
        if poison and self._used:
            self.memories.poison()
        self._used = True

    def place(self, addr: int, data: Array) -> None:
        """Put bytes into external memory."""
        self.memories.ext[addr : addr + data.size] = data

    def bind(self, instruction: Instruction) -> Callable[[], None]:
        """A function that executes the instruction."""
        plan = self._plans.get(instruction)
        if plan is None:
            plan = self._plans[instruction] = instruction.plan(self.memories)
        return plan

    def read(self, buffer: Buffer) -> Array:
        """Copy of a buffer."""
        return self.memories.buffer_view(buffer).copy()

    def write(self, buffer: Buffer, values: Array) -> None:
        """Overwrite a buffer."""
        self.memories.buffer_view(buffer)[...] = values

    def read_lrm(self, grid: Grid, loops: Sequence[int], operand: Lrm) -> Array:
        """Copy of an LRM operand, shape (row digits, column digits, loops)."""
        return self.memories.lrm_view(grid, loops, operand).copy()

    def window(self, start_pc: int, end_pc: int) -> CycleCount:
        """Cycles of the code [start_pc, end_pc)."""
        return self.clock.window(start_pc, end_pc)
