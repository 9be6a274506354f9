"""Where tensors live and when they move: OCM by first fit over time, constants brought in one kernel ahead, the rest spilled.

The planner walks the kernels in order and writes the transfers around them. A tensor that a kernel needs is in OCM while it
runs; when room is short, the resident tensor whose next use is furthest away goes to external memory and comes back before it
is used again. What a split kernel takes or gives in slices lives in external memory while it runs.

After a kernel its outputs may be overwritten where its span says they are, so that is the place its readers get them from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from epu.first_fit import align, usable
from epu.occupancy import Holding, Ledger
from epu.simulator.control import Wait
from epu.simulator.instruction import Instruction
from epu.simulator.transfers import Dma
from epu.staging import PartStep, Stream, stage_parts

MOVE_TAG, CONSTANT_TAGS, OUTPUT_TAG = 2, (3, 4), 5
WHOLE = -1
CONSTANTS, SCRATCH = ("", 0), ("", 1)

# What lies in OCM: a tensor (name, WHOLE), a place of a stream (parameter, number), CONSTANTS, SCRATCH.
Key = tuple[str, int]


@dataclass(frozen=True)
class Task:
    """What one kernel needs in OCM: whole tensors, a block of constants, scratch; a split kernel also ``streams``.

    ``reads`` and ``writes`` name whole tensors; of those in ``direct`` each part takes its slice where the whole lies.
    ``parts``: how often the kernel runs, ``depth``: see ``stage_parts``.
    """

    node: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    constants: int  # bytes
    constants_at: int  # address in external memory
    scratch: int
    streams: tuple[Stream, ...] = ()
    parts: int = 1
    depth: int = 1
    direct: tuple[Stream, ...] = ()

    @property
    def streamed(self) -> tuple[str, ...]:
        """Tensors that pass through OCM in slices."""
        return tuple(dict.fromkeys(stream.tensor for stream in self.streams if stream.tensor))

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.reads, *self.writes, *self.streamed)))

    def keep_whole(self, stream: Stream) -> Task:
        """The same with the stream's tensor whole in OCM."""
        rest = tuple(each for each in self.streams if each is not stream)
        more = {"writes" if stream.written else "reads": (stream.tensor,)}
        reads = tuple(dict.fromkeys((*self.reads, *more.get("reads", ()))))
        writes = (*self.writes, *more.get("writes", ()))
        return replace(self, reads=reads, writes=writes, streams=rest, direct=(*self.direct, stream))


@dataclass
class Step:
    """Transfers before a kernel's first instruction and after its last, those of each part, and addresses.

    ``places``: space and address of each tensor at the kernel's end.
    """

    before: list[Instruction] = field(default_factory=list)
    parts: list[PartStep] = field(default_factory=lambda: [PartStep()])
    after: list[Instruction] = field(default_factory=list)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    constants: int = 0
    scratch: int = 0


@dataclass
class Plan:
    """One step per task; bytes of external memory used in all and for temporary tensors, and the highest OCM byte used.

    ``holdings``: who held which bytes of OCM.
    """

    steps: list[Step]
    ext_bytes: int
    temporary_bytes: int
    ocm_bytes: int
    holdings: tuple[Holding, ...] = ()


def make_plan(
    tasks: Sequence[Task],
    sizes: dict[str, int],
    home: dict[str, int],
    outputs: frozenset[str],
    ext_bytes: int,
    ocm_bytes: int,
) -> Plan:
    """Plan all transfers.

    ``sizes``: bytes of each tensor. ``home``: external address of inputs and outputs. The operands of each task fit the OCM
    together (see ``ocm_split``).
    """
    planner = _Planner(tasks, sizes, dict(home), outputs, ext_bytes, ocm_bytes)
    steps = [planner.step(index) for index in range(len(tasks))]
    assert not planner.resident, "a tensor was left behind"
    return Plan(steps, planner.ext_bytes, planner.temporary, planner.ocm.peak, tuple(planner.ocm.holdings))


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
        self.tasks, self.sizes, self.home, self.outputs = list(tasks), sizes, home, outputs
        self.capacity = usable(ocm)
        self.ocm, self.ext_bytes, self.temporary = Ledger(ocm), ext, 0
        self.resident: dict[str, int] = {}
        self.clean = set(home) - outputs  # tensors whose external copy is up to date
        self.uses: dict[str, list[int]] = {}
        for index, task in enumerate(tasks):
            for name in task.tensors:
                self.uses.setdefault(name, []).append(index)
        self.ahead: dict[int, int] = {}  # task → OCM address of constants on their way

    def step(self, index: int) -> Step:
        self.ocm.now = index
        self.tasks[index] = self.with_direct(self.tasks[index])
        step, task = Step(), self.tasks[index]
        for name in task.streamed:
            self.settle(name, step)
        own = self.room(index, step)
        for name in task.reads:
            if (name, WHOLE) in own:
                step.before += [self.move("in", name), Wait(MOVE_TAG)]
        step.scratch = own.get(SCRATCH, 0)
        if task.constants:
            self.await_constants(index, own, step)
        self.prefetch(index + 1, step)
        step.parts = stage_parts(task.streams, own, self.home, task.parts, task.depth)
        for stream in task.direct:
            for part, piece in zip(step.parts, stream.slices):
                part.staged[stream.param] = self.resident[stream.tensor] + piece.offset
        step.places = {name: ("ext", self.home[name]) for name in task.streamed}
        step.places |= {name: ("ocm", self.resident[name]) for name in (*task.reads, *task.writes)}
        self.retire(index, own, step)
        return step

    def with_direct(self, task: Task) -> Task:
        """The task with tensors whole in OCM where that saves transfers: inputs that are there, results that have room."""
        for stream in sorted(task.streams, key=lambda each: each.written):
            if stream.in_blocks and (stream.written or stream.tensor in self.resident):
                changed = task.keep_whole(stream)
                task = changed if self.total(changed) <= self.capacity else task
        return task

    def total(self, task: Task) -> int:
        """OCM bytes of a task."""
        tensors = sum(align(self.sizes[name]) for name in {*task.reads, *task.writes})
        places = sum(align(stream.slot_bytes) * stream.slots for stream in task.streams)
        return tensors + places + sum(align(size) for size in (task.scratch, task.constants) if size)

    def settle(self, name: str, step: Step) -> None:
        """Give a tensor an external copy, up to date where the tensor is in OCM."""
        if name not in self.home:
            self.home[name] = self.ext_bytes
            self.ext_bytes += align(self.sizes[name])
            self.temporary += align(self.sizes[name])
        if name in self.resident and name not in self.clean:
            step.before += [self.move("out", name), Wait(MOVE_TAG)]
            self.clean.add(name)

    def move(self, direction: str, name: str, tag: int = MOVE_TAG) -> Dma:
        size = self.sizes[name]
        return Dma(direction, self.home[name], self.resident[name], (size,), (1,), (1,), 1, tag)

    def needs(self, index: int) -> dict[Key, int]:
        """Bytes of all that a task wants in OCM and that is not there."""
        task = self.tasks[index]
        found = {(name, WHOLE): self.sizes[name] for name in (*task.reads, *task.writes) if name not in self.resident}
        if task.scratch:
            found[SCRATCH] = task.scratch
        if task.constants and index not in self.ahead:
            found[CONSTANTS] = task.constants
        for stream in task.streams:
            found |= {(stream.param, place): stream.slot_bytes for place in range(stream.slots)}
        return found

    def room(self, index: int, step: Step) -> dict[Key, int]:
        """Addresses for a task's needs. Spills what is needed last; where the rest lies in the way too, all of it."""
        busy = {*self.tasks[index].reads, *self.tasks[index].writes}
        while (found := self.ocm.take(self.needs(index))) is None:
            idle = [name for name in self.resident if name not in busy]
            if idle:
                self.spill(max(idle, key=lambda name: self.next_use(name, index)), step)
            else:
                assert self.resident or index in self.ahead, f"{self.tasks[index].node} does not fit the OCM"
                self.clear(index, step)
        self.resident |= {name: address for (name, place), address in found.items() if place == WHOLE}
        return found

    def next_use(self, name: str, index: int) -> int:
        return next((use for use in self.uses.get(name, ()) if use > index), len(self.tasks))

    def spill(self, name: str, step: Step) -> None:
        self.settle(name, step)
        self.ocm.give(self.resident.pop(name), self.sizes[name])

    def clear(self, index: int, step: Step) -> None:
        """Empty the OCM."""
        for name in list(self.resident):
            self.spill(name, step)
        if index in self.ahead:
            step.before.append(Wait(CONSTANT_TAGS[index % 2]))
            self.ocm.give(self.ahead.pop(index), self.tasks[index].constants)

    # ---- constants ------------------------------------------------------------------------------------------------
    def constant_transfer(self, index: int, address: int) -> Dma:
        self.ahead[index] = address
        task = self.tasks[index]
        return Dma("in", task.constants_at, address, (task.constants,), (1,), (1,), 1, CONSTANT_TAGS[index % 2])

    def await_constants(self, index: int, own: dict[Key, int], step: Step) -> None:
        if CONSTANTS in own:
            step.before.append(self.constant_transfer(index, own[CONSTANTS]))
        step.before.append(Wait(CONSTANT_TAGS[index % 2]))
        step.constants = self.ahead[index]

    def prefetch(self, index: int, step: Step) -> None:
        """Start the next kernel's constants where there is room without moving anything."""
        if index < len(self.tasks) and self.tasks[index].constants:
            found = self.ocm.take({CONSTANTS: self.tasks[index].constants}, kernel=index)
            if found is not None:
                step.before.append(self.constant_transfer(index, found[CONSTANTS]))

    # ---- afterwards -----------------------------------------------------------------------------------------------
    def retire(self, index: int, own: dict[Key, int], step: Step) -> None:
        """After the kernel: outputs leave, what nobody needs any more is freed."""
        task = self.tasks[index]
        for name in task.writes:
            if name in self.outputs:
                step.after += [self.move("out", name, OUTPUT_TAG), Wait(OUTPUT_TAG)]
        self.clean |= {stream.tensor for stream in task.streams if stream.written}
        if index in self.ahead:
            self.ocm.give(self.ahead.pop(index), task.constants, used_now=True)
        if SCRATCH in own:
            self.ocm.give(own[SCRATCH], task.scratch, used_now=True)
        for stream in task.streams:
            for place in range(stream.slots):
                self.ocm.give(own[stream.param, place], stream.slot_bytes, used_now=True)
        for name in task.tensors:
            if name in self.resident and self.next_use(name, index) == len(self.tasks):
                self.ocm.give(self.resident.pop(name), self.sizes[name], used_now=True)
