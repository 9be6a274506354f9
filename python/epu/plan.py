"""Where tensors live and when they move: OCM by first fit over time, constants brought in one kernel ahead, the rest spilled.

The planner walks the kernels in order and writes the transfers around them. A tensor that a kernel needs is in OCM while it
runs; when room is short, the resident tensor whose next use is furthest away goes to external memory and comes back before it
is used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from epu.errors import CapacityError
from epu.simulator.control import Wait
from epu.simulator.instruction import Instruction
from epu.simulator.transfers import Dma

ALIGNMENT = 64
MOVE_TAG, CONSTANT_TAGS, OUTPUT_TAG = 2, (3, 4), 5


def align(size: int) -> int:
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Task:
    """What one kernel needs: tensors read and written (bytes each), a block of constants, scratch."""

    node: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    constants: int  # bytes
    constants_at: int  # address in external memory
    scratch: int


@dataclass
class Step:
    """Transfers before a kernel's instructions, its addresses, transfers after."""

    before: list[Instruction] = field(default_factory=list)
    after: list[Instruction] = field(default_factory=list)
    addresses: dict[str, int] = field(default_factory=dict)
    constants: int = 0
    scratch: int = 0


@dataclass
class Plan:
    """One step per task; bytes of external memory used in all and for spilled tensors, and the highest OCM byte used."""

    steps: list[Step]
    ext_bytes: int
    spill_bytes: int
    ocm_bytes: int


class FirstFit:
    """Free runs of a memory."""

    def __init__(self, capacity: int) -> None:
        self.free, self.peak, self.capacity = [(0, capacity // ALIGNMENT * ALIGNMENT)], 0, capacity

    def take(self, size: int) -> int | None:
        """Lowest address of a free run of ``size`` bytes, None where there is none."""
        need = align(size)
        for position, (start, length) in enumerate(self.free):
            if length >= need:
                self.free[position : position + 1] = [(start + need, length - need)] if length > need else []
                self.peak = max(self.peak, start + need)
                return start
        return None

    def give(self, start: int, size: int) -> None:
        merged: list[tuple[int, int]] = []
        for begin, length in sorted([*self.free, (start, align(size))]):
            if merged and sum(merged[-1]) == begin:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((begin, length))
        self.free = merged


def make_plan(
    tasks: Sequence[Task],
    sizes: dict[str, int],
    home: dict[str, int],
    outputs: frozenset[str],
    ext_bytes: int,
    ocm_bytes: int,
) -> Plan:
    """Plan all transfers.

    ``sizes``: bytes of each tensor. ``home``: external address of inputs and outputs. Raises CapacityError naming the node
    whose operands do not fit the OCM together.
    """
    planner = _Planner(tasks, sizes, dict(home), outputs, ext_bytes, ocm_bytes)
    steps = [planner.step(index) for index in range(len(tasks))]
    planner.finish(steps)
    return Plan(steps, planner.ext_bytes, planner.spilled, planner.ocm.peak)


class _Planner:
    def __init__(
        self,
        tasks: Sequence[Task],
        sizes: dict[str, int],
        home: dict[str, int],
        outputs: frozenset[str],
        ext: int,
        ocm: int,
    ) -> None:
        self.tasks, self.sizes, self.home, self.outputs = tasks, sizes, home, outputs
        self.ocm, self.ext_bytes, self.spilled = FirstFit(ocm), ext, 0
        self.resident: dict[str, int] = {}
        self.clean = set(home) - outputs  # tensors whose external copy is up to date
        self.uses: dict[str, list[int]] = {}
        for index, task in enumerate(tasks):
            for name in (*task.reads, *task.writes):
                self.uses.setdefault(name, []).append(index)
        self.constants: dict[int, int] = {}  # task → OCM address of constants on their way or there
        self.pending_output = False

    def step(self, index: int) -> Step:
        step, task = Step(), self.tasks[index]
        busy = {*task.reads, *task.writes}
        for name in task.reads:
            self.bring(name, index, busy, step)
        for name in task.writes:
            self.resident[name] = self.room(self.sizes[name], index, busy, step)
        step.scratch = self.room(task.scratch, index, busy, step) if task.scratch else 0
        if task.constants and index not in self.constants:
            self.constants[index] = self.room(task.constants, index, busy, step)
            step.before.append(self.constant_transfer(index))
        if task.constants:
            step.before.append(Wait(CONSTANT_TAGS[index % 2]))
            step.constants = self.constants[index]
        self.prefetch(index + 1, step)
        step.addresses = {name: self.resident[name] for name in busy}
        self.retire(index, step)
        return step

    def constant_transfer(self, index: int) -> Dma:
        task = self.tasks[index]
        where = (task.constants_at, self.constants[index], (task.constants,), (1,), (1,), 1)
        return Dma("in", *where, CONSTANT_TAGS[index % 2])

    def prefetch(self, index: int, step: Step) -> None:
        """Start the next kernel's constants where there is room without moving anything."""
        if index >= len(self.tasks) or not self.tasks[index].constants:
            return
        found = self.ocm.take(self.tasks[index].constants)
        if found is not None:
            self.constants[index] = found
            step.before.append(self.constant_transfer(index))

    def bring(self, name: str, index: int, busy: set[str], step: Step) -> None:
        if name in self.resident:
            return
        self.resident[name] = self.room(self.sizes[name], index, busy, step)
        step.before += [self.move("in", name), Wait(MOVE_TAG)]

    def move(self, direction: str, name: str, tag: int = MOVE_TAG) -> Dma:
        size = self.sizes[name]
        return Dma(direction, self.home[name], self.resident[name], (size,), (1,), (1,), 1, tag)

    def room(self, size: int, index: int, busy: set[str], step: Step) -> int:
        """OCM for ``size`` bytes, spilling what is needed last until it fits."""
        while (found := self.ocm.take(size)) is None:
            idle = [name for name in self.resident if name not in busy]
            if not idle:
                self.fail(index)
            self.spill(max(idle, key=lambda name: self.next_use(name, index)), step)
        return found

    def next_use(self, name: str, index: int) -> int:
        return next((use for use in self.uses.get(name, ()) if use > index), len(self.tasks))

    def spill(self, name: str, step: Step) -> None:
        if name not in self.clean:
            if name not in self.home:
                self.home[name] = self.ext_bytes
                self.ext_bytes += align(self.sizes[name])
                self.spilled += align(self.sizes[name])
            step.before += [self.move("out", name), Wait(MOVE_TAG)]
            self.clean.add(name)
        self.ocm.give(self.resident.pop(name), self.sizes[name])

    def retire(self, index: int, step: Step) -> None:
        """After the kernel: outputs leave, what nobody needs any more is freed."""
        task = self.tasks[index]
        for name in task.writes:
            if name in self.outputs:
                step.after += [self.move("out", name, OUTPUT_TAG), Wait(OUTPUT_TAG)]
                self.clean.add(name)
        if index in self.constants:
            self.ocm.give(self.constants[index], task.constants)
        if task.scratch:
            self.ocm.give(step.scratch, task.scratch)
        for name in {*task.reads, *task.writes}:
            if self.next_use(name, index) == len(self.tasks):
                self.ocm.give(self.resident.pop(name), self.sizes[name])

    def finish(self, steps: list[Step]) -> None:
        assert not self.resident or all(name in self.clean for name in self.resident), "a tensor was left behind"

    def fail(self, index: int) -> None:
        task = self.tasks[index]
        parts = {name: self.sizes[name] for name in (*task.reads, *task.writes)}
        need = (
            sum(align(size) for size in parts.values())
            + align(task.constants)
            + (align(task.scratch) if task.scratch else 0)
        )
        listing = ", ".join(f"{name} {size}" for name, size in parts.items())
        raise CapacityError(
            f"ONNX node '{task.node}': its operands must fit the OCM together: {need} bytes ({listing}, constants "
            f"{task.constants}, scratch {task.scratch}), the OCM has {self.ocm.capacity}. Use a larger ocm_size."
        )
