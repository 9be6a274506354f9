"""Run a program: the loop over instructions, listeners, results."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from epu.simulator.blas import one_thread
from epu.simulator.engine import FastEngine
from epu.simulator.errors import MachineFault, UserError
from epu.simulator.guard import Guard
from epu.simulator.instruction import Access, Instruction
from epu.simulator.memory import Array, check_raw
from epu.simulator.operands import Grid, Lrm
from epu.simulator.program import Buffer, KernelSpan, Program
from epu.simulator.step import StepEngine
from epu.simulator.timing import CycleCount
from epu.simulator.transfers import Dma
from epu.simulator.verify import check_instruction, check_program, memory_sizes


@dataclass(frozen=True)
class RunResult:
    """What a run gives: raw outputs by name, cycles in all and per kernel, traffic, memory peaks, host seconds."""

    outputs: dict[str, Array]
    cycles: CycleCount
    kernels: tuple[CycleCount, ...]
    ext_read_bytes: int
    ext_write_bytes: int
    peak_ocm: int
    peak_lrm: int
    seconds: float


class Engine(Protocol):
    """What executes instructions: see FastEngine."""

    def start(self, poison: bool) -> None: ...
    def place(self, addr: int, data: Array) -> None: ...
    def bind(self, instruction: Instruction) -> Callable[[], None]: ...
    def read(self, buffer: Buffer) -> Array: ...
    def write(self, buffer: Buffer, values: Array) -> None: ...
    def read_lrm(self, grid: Grid, loops: Sequence[int], operand: Lrm) -> Array: ...
    def window(self, start_pc: int, end_pc: int) -> CycleCount: ...


ENGINES: dict[str, Callable[[Program], Engine]] = {"fast": FastEngine, "step": StepEngine}


class MachineState:
    """What a listener may look at and overwrite."""

    def __init__(self, engine: Engine, guard: Guard | None) -> None:
        self._engine = engine
        self._guard = guard
        self.wrote = False

    def read(self, buffer: Buffer) -> Array:
        """Copy of a buffer's raw integers."""
        return self._engine.read(buffer)

    def write(self, buffer: Buffer, array: Any) -> None:
        """Overwrite a buffer with raw integers; its bytes count as written."""
        self._engine.write(buffer, check_raw(buffer, array))
        self.wrote = True
        if self._guard is not None:
            self._guard.mark_buffer(buffer)

    def read_lrm(self, grid: Grid, loops: Sequence[int], operand: Lrm) -> Array:
        """Copy of an LRM operand, shape (row digits, column digits, loops)."""
        return self._engine.read_lrm(grid, loops, operand)


class _Watch:
    """Calls the listeners that exist, at the pcs that matter."""

    def __init__(self, program: Program, listeners: Sequence[object], state: MachineState) -> None:
        self._state = state
        self._code = program.code
        self._each = _hooks(listeners, "on_instruction")
        self._ends: dict[int, list[tuple[int, KernelSpan]]] = {}
        self._kernel = _hooks(listeners, "on_kernel_end")
        if self._kernel:
            for index, span in enumerate(program.debug.kernels):
                self._ends.setdefault(span.end_pc - 1, []).append((index, span))

    def after(self, pc: int) -> None:
        """Tell the listeners that ``pc`` has run."""
        for hook in self._each:
            hook(pc, self._code[pc], self._state)
        for index, span in self._ends.get(pc, ()):
            for hook in self._kernel:
                hook(index, span, self._state)

    @property
    def idle(self) -> bool:
        """Whether nobody listens."""
        return not self._each and not self._ends


def _hooks(listeners: Sequence[object], name: str) -> list[Callable[..., None]]:
    return [getattr(each, name) for each in listeners if hasattr(each, name)]


class Simulator:
    """A program ready to run many times. MachineFault or ProgramError where it breaks a limit of the machine.

    The program has no branches, so strict mode proves it in its first run; later runs skip the proof.
    """

    def __init__(self, program: Program, *, strict: bool = True, engine: str = "fast") -> None:
        if engine not in ENGINES:
            raise UserError(f"engine must be one of {', '.join(ENGINES)}, found {engine!r}. Choose one of these.")
        check_program(program)
        self.program = program
        self._strict = strict
        self._accesses = self._check_code()
        self._engine = ENGINES[engine](program)
        self._proven = False
        self._bound: list[Callable[[], None]] = []

    def _check_code(self) -> list[tuple[Access, ...]]:
        machine = self.program.machine
        sizes = memory_sizes(machine, self.program.ext_bytes)
        known: dict[Instruction, tuple[Access, ...]] = {}
        found = []
        for pc, instruction in enumerate(self.program.code):
            if instruction not in known:
                known[instruction] = self._at(pc, partial(check_instruction, instruction, machine, sizes))
            found.append(known[instruction])
        return found

    def _at(self, pc: int, function: Callable[[], Any]) -> Any:
        """Call, with the place filled into a fault."""
        try:
            return function()
        except MachineFault as fault:
            raise self._placed(fault, pc) from None

    def _placed(self, fault: MachineFault, pc: int) -> MachineFault:
        return fault.at(pc, str(self.program.code[pc]), self.program.debug.node_at(pc))

    def run(self, inputs: Mapping[str, Any], listeners: Sequence[object] = ()) -> RunResult:
        """One run; ``inputs`` are raw integers by name."""
        started = time.perf_counter()
        guard = Guard(self.program.machine, self.program.ext_bytes) if self._strict and not self._proven else None
        state = MachineState(self._engine, guard)
        self._fill(inputs, guard)
        with np.errstate(all="ignore"), one_thread():
            self._execute(guard, _Watch(self.program, listeners, state))
        self._proven = self._proven or (guard is not None and not state.wrote)
        return self._result(started)

    def _fill(self, inputs: Mapping[str, Any], guard: Guard | None) -> None:
        """Poison all memory unless proven harmless, then place constants and inputs."""
        unknown = sorted(set(inputs) - {each.name for each in self.program.inputs})
        if unknown:
            known = ", ".join(each.name for each in self.program.inputs)
            raise UserError(f"input '{unknown[0]}' is not an input of program '{self.program.name}'. Inputs: {known}.")
        self._engine.start(poison=not self._proven)
        for constant in self.program.constants:
            self._engine.place(constant.addr, np.frombuffer(constant.data, np.uint8))
            if guard is not None:
                guard.mark("ext", constant.addr, len(constant.data))
        for buffer in self.program.inputs:
            if buffer.name not in inputs:
                raise UserError(
                    f"input '{buffer.name}' of program '{self.program.name}' is missing. Give its raw integers."
                )
            self._engine.write(buffer, check_raw(buffer, inputs[buffer.name]))
            if guard is not None:
                guard.mark_buffer(buffer)

    def _execute(self, guard: Guard | None, watch: _Watch) -> None:
        code = self.program.code
        pc = 0
        try:
            for pc in range(len(code)):
                if guard is not None:
                    guard.pass_instruction(code[pc], self._accesses[pc])
                if len(self._bound) == pc:
                    self._bound.append(self._engine.bind(code[pc]))
                self._bound[pc]()
                if not watch.idle:
                    watch.after(pc)
        except MachineFault as fault:
            raise self._placed(fault, pc) from None

    def _result(self, started: float) -> RunResult:
        window = self._engine.window
        program = self.program
        outputs = {each.name: self._engine.read(each) for each in program.outputs}
        return RunResult(
            outputs=outputs,
            cycles=window(0, len(program.code)),
            kernels=tuple(window(span.start_pc, span.end_pc) for span in program.debug.kernels),
            ext_read_bytes=self._traffic("in"),
            ext_write_bytes=self._traffic("out"),
            peak_ocm=self._peak("ocm"),
            peak_lrm=self._peak("lrm"),
            seconds=time.perf_counter() - started,
        )

    def _traffic(self, direction: str) -> int:
        return sum(each.bytes for each in self.program.code if isinstance(each, Dma) and each.direction == direction)

    def _peak(self, space: str) -> int:
        """Bytes of a memory up to the highest one touched."""
        distinct = {access for accesses in self._accesses for access in accesses if access.space == space}
        return max((access.bounds[1] for access in distinct), default=0)


_Kept = tuple["weakref.ref[Program]", tuple[bool, str], "Simulator"]
_last: list[_Kept] = []  # the simulator of the last program, ready to run again


def simulate(
    program: Program,
    inputs: Mapping[str, Any],
    *,
    strict: bool = True,
    engine: str = "fast",
    listeners: Sequence[object] = (),
) -> RunResult:
    """Run ``program`` on raw integer ``inputs``.

    Strict mode faults on reads of unwritten bytes and on areas in flight; bounds, alignment and look-up ranges always fault.
    ``engine`` is "fast" or "step" (one array cycle at a time; slow). The last program stays ready for its next run.
    Raises UserError, ProgramError, MachineFault.
    """
    simulator = _ready(program, strict, engine)
    try:
        return simulator.run(inputs, listeners)
    except BaseException:
        _last.clear()
        raise


def _ready(program: Program, strict: bool, engine: str) -> Simulator:
    for known, settings, simulator in _last:
        if known() is program and settings == (strict, engine):
            return simulator
    simulator = Simulator(program, strict=strict, engine=engine)
    _last[:] = [(weakref.ref(program), (strict, engine), simulator)]
    return simulator
