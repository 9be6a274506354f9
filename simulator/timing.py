"""Cycles: an in-order array, three channels beside it, and the exact split of a kernel's time into classes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from epu.simulator.control import Halt, Wait
from epu.simulator.instruction import Cost, Instruction

CLASSES = ("compute", "mac", "data_array", "data_ocm", "data_external")


@dataclass(frozen=True)
class CycleCount:
    """Cycles of a stretch of code; the five classes less ``overlap`` are ``total``."""

    total: int = 0
    compute: int = 0
    mac: int = 0
    data_array: int = 0
    data_ocm: int = 0
    data_external: int = 0
    overlap: int = 0


class Channel:
    """First come, first served; remembers when it was busy, and with which pc."""

    def __init__(self) -> None:
        self.free = 0
        self.pcs: list[int] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._sums: list[int] = []

    def occupy(self, now: int, cycles: int, pc: int) -> int:
        """Queue ``cycles`` of work of instruction ``pc`` at ``now``; returns when it is done."""
        start = max(now, self.free)
        self.free = start + cycles
        if cycles:
            self._starts.append(start)
            self._ends.append(self.free)
            self.pcs.append(pc)
            self._sums.append((self._sums[-1] if self._sums else 0) + cycles)
        return self.free

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """(pc, start, end) of each piece of work, in order."""
        return zip(self.pcs, self._starts, self._ends)

    def busy_before(self, time: int) -> int:
        """Busy cycles before ``time``."""
        index = bisect_right(self._starts, time) - 1
        if index < 0:
            return 0
        return self._sums[index] - max(0, self._ends[index] - time)


class Clock:
    """Issues instructions in order.

    A synchronous instruction takes its own cycles on the array; its OCM words queue behind those of asynchronous transfers
    on the port, so it ends when both its array work and its words are done.
    """

    def __init__(self) -> None:
        self.now = 0
        self.starts = [0]  # time before each pc, and at the end
        self._work = [(0, 0, 0)]  # compute, mac, data_array up to each pc
        self.channels = {name: Channel() for name in ("in", "out", "port")}
        self._tags: dict[int, int] = {}

    @property
    def pc(self) -> int:
        """The instruction that is issued next."""
        return len(self.starts) - 1

    def work(self, pc: int) -> tuple[int, int, int]:
        """Compute, mac and data_array cycles of an issued instruction."""
        before, after = self._work[pc], self._work[pc + 1]
        return after[0] - before[0], after[1] - before[1], after[2] - before[2]

    def issue(self, instruction: Instruction, cost: Cost) -> None:
        """Advance past one instruction."""
        if isinstance(instruction, Wait):
            self.now = max(self.now, self._tags.pop(instruction.tag, 0))
        elif isinstance(instruction, Halt):
            self.now = max([self.now, *self._tags.values()])
        elif instruction.channel:
            self._start_transfer(instruction, cost)
        else:
            words_done = self.channels["port"].occupy(self.now, cost.data_ocm, self.pc) if cost.data_ocm else 0
            self.now = max(self.now + cost.total, words_done)
        compute, mac, array = self._work[-1]
        self._work.append((compute + cost.compute, mac + cost.mac, array + cost.data_array))
        self.starts.append(self.now)

    def _start_transfer(self, instruction: Instruction, cost: Cost) -> None:
        done = self.channels[instruction.channel].occupy(self.now, cost.total, self.pc)
        tag: int = instruction.tag  # type: ignore[attr-defined]
        self._tags[tag] = max(done, self._tags.get(tag, 0))

    def window(self, start_pc: int, end_pc: int) -> CycleCount:
        """Cycles of the code [start_pc, end_pc)."""
        start, end = self.starts[start_pc], self.starts[end_pc]
        compute, mac, array = (b - a for a, b in zip(self._work[start_pc], self._work[end_pc]))
        busy = {name: each.busy_before(end) - each.busy_before(start) for name, each in self.channels.items()}
        external = busy["in"] + busy["out"]
        overlap = compute + mac + array + busy["port"] + external - (end - start)
        return CycleCount(end - start, compute, mac, array, busy["port"], external, overlap)
