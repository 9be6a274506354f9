"""Carries a plan out on byte arrays, with every transfer as late as the machine may do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.plan import Plan, Step, Task
from epu.simulator.control import Wait
from epu.simulator.instruction import Instruction
from epu.simulator.transfers import Dma

Bytes = NDArray[np.uint8]


def places(address: int, shape: Sequence[int], strides: Sequence[int], elem_bytes: int) -> NDArray[np.int64]:
    """Byte addresses of a strided box, C order."""
    found: NDArray[np.int64] = np.array([address])
    for count, stride in zip((*shape, elem_bytes), (*strides, 1)):
        found = found[..., None] + np.arange(count) * stride
    return found.ravel()


@dataclass
class Carrier:
    """External memory and OCM. A transfer happens when it is awaited; until then its target holds nothing of use and its
    source must stay as it is."""

    values: dict[str, Bytes]  # what each tensor holds once it is computed
    constants: dict[int, Bytes]  # by external address
    plan: Plan
    ocm_bytes: int
    seed: int = 0
    pending: dict[int, list[tuple[NDArray[Any], NDArray[Any], str, Bytes]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.spaces = {"ext": self.noise(self.plan.ext_bytes), "ocm": self.noise(self.ocm_bytes)}
        for address, data in self.constants.items():
            self.put("ext", address, data)

    def noise(self, count: int) -> Bytes:
        return self.rng.integers(0, 255, count, np.uint8, endpoint=True)

    def put(self, space: str, address: int, data: Bytes) -> None:
        assert 0 <= address <= len(self.spaces[space]) - len(data), f"{space} {address} + {len(data)} leaves the memory"
        self.spaces[space][address : address + len(data)] = data

    def check(self, what: str, space: str, address: int, data: Bytes) -> None:
        assert (self.spaces[space][address : address + len(data)] == data).all(), f"{what} is not at {space} {address}"

    def carry(self, instructions: Sequence[Instruction]) -> None:
        for each in instructions:
            if isinstance(each, Wait):
                self.finish(each.tag)
            else:
                assert isinstance(each, Dma)
                self.begin(each)

    def begin(self, dma: Dma) -> None:
        ext = places(dma.ext_addr, dma.shape, dma.ext_strides, dma.elem_bytes)
        ocm = places(dma.ocm_addr, dma.shape, dma.ocm_strides, dma.elem_bytes)
        source, target = (("ext", ext), ("ocm", ocm)) if dma.direction == "in" else (("ocm", ocm), ("ext", ext))
        seen = self.spaces[source[0]][source[1]]
        self.spaces[target[0]][target[1]] = self.noise(len(ocm))
        self.pending.setdefault(dma.tag, []).append((source[1], target[1], dma.direction, seen))

    def finish(self, tag: int) -> None:
        for source, target, direction, seen in self.pending.pop(tag, []):
            first, second = ("ext", "ocm") if direction == "in" else ("ocm", "ext")
            assert (self.spaces[first][source] == seen).all(), (
                f"the source of a transfer with tag {tag} was overwritten"
            )
            self.spaces[second][target] = seen

    def run(self, tasks: Sequence[Task]) -> None:
        for task, step in zip(tasks, self.plan.steps):
            self.carry(step.before)
            for index, part in enumerate(step.parts):
                self.carry(part.before)
                self.compute(task, step, index)
                self.carry(part.after)
            self.carry(step.after)
            for name in task.tensors:
                space, address = step.places[name]
                self.check(f"after {task.node} {name}", space, address, self.values[name])
        assert not any(self.pending.values()), "a transfer is never awaited"

    def compute(self, task: Task, step: Step, index: int) -> None:
        """What a part of a kernel reads is there; what it writes and its scratch are overwritten."""
        whole = {name: step.places[name][1] for name in (*task.reads, *task.writes)}
        for name in task.reads:
            self.check(f"{task.node} reads {name}", "ocm", whole[name], self.values[name])
        if task.constants:
            self.check(f"{task.node} constants", "ocm", step.constants, self.constants[task.constants_at])
        for stream in task.streams:
            piece, address = stream.slices[index], step.parts[index].staged[stream.param]
            source = self.values[stream.tensor] if stream.tensor else self.constants[stream.constant_at]
            data = source[places(piece.offset, piece.counts, piece.strides, piece.elem_bytes)]
            if stream.written:
                self.put("ocm", address, data)
            else:
                self.check(f"{task.node} part {index} reads {stream.param}", "ocm", address, data)
        for name in task.writes:
            self.put("ocm", whole[name], self.values[name])
        if task.scratch:
            self.put("ocm", step.scratch, self.noise(task.scratch))
