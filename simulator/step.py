"""The literal engine: one array cycle, bus word or neighbour hop at a time, in Python integers.

It shares no arithmetic, layout or timing code with the fast engine; tests hold the two against each other. Each ``yield``
in an instruction's meaning is one cycle of the array and names the class it belongs to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

from epu.simulator.control import Halt, Wait
from epu.simulator.instruction import Instruction
from epu.simulator.matrix import Mac
from epu.simulator.operands import Lrm, Ocm
from epu.simulator.program import Program
from epu.simulator.step_array import ArrayWork, mac_bus_words
from epu.simulator.step_memory import SIZE, StepMemories, indices, offset
from epu.simulator.timing import CycleCount
from epu.simulator.transfers import Dma, Load, Store

Word = Callable[[], None] | None  # what arrives with the word; None where the array takes it by itself
COUNTED = ("compute", "mac", "data_array", "data_ocm", "data_external", "total")


class StepEngine:
    """Array, memories, queues of the three channels, counters."""

    def __init__(self, program: Program) -> None:
        self.machine = program.machine
        self._ext_bytes = program.ext_bytes
        self.start(poison=True)

    def start(self, poison: bool) -> None:
        """Begin a run at cycle 0."""
        if poison:
            self.memories = StepMemories(self.machine, self._ext_bytes)
            self._array = ArrayWork(self.memories)
            self.place, self.read, self.write = self.memories.place, self.memories.read, self.memories.write
            self.read_lrm = self.memories.read_lrm
        self.port: deque[tuple[int, Word]] = deque()  # (tag, word)
        self.external: dict[str, deque[tuple[int, int, Callable[[], None]]]] = {"in": deque(), "out": deque()}
        self.counts = dict.fromkeys(COUNTED, 0)
        self.marks = [dict(self.counts)]

    def bind(self, instruction: Instruction) -> Callable[[], None]:
        """A function that executes the instruction cycle by cycle."""
        return lambda: self._execute(instruction)

    def _execute(self, instruction: Instruction) -> None:
        if isinstance(instruction, Wait):
            while self._in_flight(instruction.tag):
                self._tick("")
        elif isinstance(instruction, Halt):
            while self.port or self.external["in"] or self.external["out"]:
                self._tick("")
        elif isinstance(instruction, Dma):
            self._start_dma(instruction)
        else:
            self._run_on_array(instruction)
        self.marks.append(dict(self.counts))

    def _run_on_array(self, instruction: Instruction) -> None:
        """Queue its bus words, step its array work, then wait for the words of a synchronous instruction."""
        tag = getattr(instruction, "tag", 0)
        self.port.extend((tag, word) for word in self._bus_words(instruction))
        for cycle_class in self._array.of(instruction):
            self._tick(cycle_class)
        while any(owner == 0 for owner, _ in self.port):
            self._tick("")

    def _in_flight(self, tag: int) -> bool:
        queues = (self.port, self.external["in"], self.external["out"])
        return any(entry[0] == tag for queue in queues for entry in queue)

    def _tick(self, cycle_class: str) -> None:
        """One cycle: the array does ``cycle_class`` (if any), each channel serves its queue."""
        self.counts["total"] += 1
        if cycle_class:
            self.counts[cycle_class] += 1
        if self.port:
            _, word = self.port.popleft()
            self.counts["data_ocm"] += 1
            if word is not None:
                word()
        for queue in self.external.values():
            if queue:
                self._step_burst(queue)

    def _step_burst(self, queue: deque[tuple[int, int, Callable[[], None]]]) -> None:
        self.counts["data_external"] += 1
        tag, left, finish = queue.popleft()
        if left > 1:
            queue.appendleft((tag, left - 1, finish))
        else:
            finish()

    def window(self, start_pc: int, end_pc: int) -> CycleCount:
        """Cycles counted while the code [start_pc, end_pc) ran."""
        spent = {name: self.marks[end_pc][name] - self.marks[start_pc][name] for name in COUNTED}
        total = spent.pop("total")
        return CycleCount(total=total, **spent, overlap=sum(spent.values()) - total)

    def _start_dma(self, dma: Dma) -> None:
        bandwidth = self.machine.ext_rd_gbps if dma.direction == "in" else self.machine.ext_wr_gbps
        per_cycle = bandwidth / (self.machine.clock_ghz * self.machine.num_cores)
        cycles, sent = self.machine.ext_latency, 0.0
        while sent < dma.bytes:
            sent += per_cycle
            cycles += 1
        self.external[dma.direction].append((dma.tag, cycles, lambda: self._copy_burst(dma)))

    def _copy_burst(self, dma: Dma) -> None:
        for index in indices(dma.shape):
            ext = dma.ext_addr + offset(index, dma.ext_strides)
            ocm = dma.ocm_addr + offset(index, dma.ocm_strides)
            (to, dst), (source, src) = (
                (("ocm", ocm), ("ext", ext)) if dma.direction == "in" else (("ext", ext), ("ocm", ocm))
            )
            self.memories.memory[to][dst : dst + dma.elem_bytes] = self.memories.memory[source][
                src : src + dma.elem_bytes
            ]

    def _bus_words(self, instruction: Instruction) -> Iterator[Word]:
        if isinstance(instruction, (Load, Store)):
            yield from self._transfer_words(instruction)
        elif isinstance(instruction, Mac):
            for _ in range(instruction.ring):
                yield from [None] * mac_bus_words(instruction, self.machine.port_bytes)

    def _transfer_words(self, move: Any) -> Iterator[Word]:
        """Rows one after the other, or all at once where a Load reads the same for all; all columns in parallel."""
        inward = isinstance(move, Load)
        lrm, ocm = (move.dst, move.src) if inward else (move.src, move.dst)
        rows = list(range(move.grid.height))
        groups = [rows] if inward and not any(ocm.row_strides) else [[row] for row in rows]
        for group in groups:
            for elements in words_of(move.loops, ocm, self.machine.port_bytes):
                yield partial(self._move, move, lrm, ocm, group, elements, inward)

    def _move(self, move: Any, lrm: Lrm, ocm: Ocm, rows: list[int], elements: list[Any], inward: bool) -> None:
        size = SIZE[lrm.dtype]
        for row, col, index in product(rows, range(move.grid.width), elements):
            local = self.memories.lrm[row * self.machine.cols + col]
            there, here = self.memories.ocm_addr(ocm, move.grid, row, col, index), lrm.addr + offset(index, lrm.strides)
            if inward:
                local[here : here + size] = self.memories.memory["ocm"][there : there + size]
            else:
                self.memories.memory["ocm"][there : there + size] = local[here : here + size]


def words_of(loops: Sequence[int], ocm: Ocm, word: int) -> Iterator[list[tuple[int, ...]]]:
    """Elements that travel with each bus word of one PE; a wide element travels with its last word."""
    elements = list(indices(loops))
    size = SIZE[ocm.dtype]
    if size >= word:
        for element in elements:
            yield from [[]] * (size // word - 1)
            yield [element]
        return
    full = any(stride == size and (count * size) % word == 0 for count, stride in zip(loops, ocm.strides))
    step = word // size if full else 1
    for start in range(0, len(elements), step):
        yield elements[start : start + step]
