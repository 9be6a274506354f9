"""How the operands of a split kernel pass through OCM: slices of the external copy, brought part by part and taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from epu.first_fit import ALIGNMENT
from epu.lowering.split import Range
from epu.simulator.control import Wait
from epu.simulator.instruction import Instruction
from epu.simulator.transfers import Dma

IN_TAGS, OUT_TAGS = (6, 7), (8, 9)


@dataclass(frozen=True)
class Slice:
    """A box of a C-contiguous operand in external memory; contiguous in OCM. Offset and strides in bytes."""

    offset: int
    counts: tuple[int, ...]
    strides: tuple[int, ...]
    elem_bytes: int

    @property
    def bytes(self) -> int:
        return prod(self.counts) * self.elem_bytes


def slice_of(shape: Sequence[int], region: Sequence[Range], size: int) -> Slice:
    """The box ``region`` of an operand of ``shape`` with elements of ``size`` bytes, in the longest runs."""
    counts, strides = [1], [size]  # innermost last, extended to the left
    offset, step = 0, size
    for extent, (start, stop) in zip(reversed(shape), reversed(region)):
        offset += start * step
        if strides[0] * counts[0] == step:
            counts[0] *= stop - start
        elif stop - start > 1:
            counts.insert(0, stop - start)
            strides.insert(0, step)
        step *= extent
    return Slice(offset, tuple(counts[:-1]), tuple(strides[:-1]), counts[-1] * size)


@dataclass(frozen=True)
class Stream:
    """An operand of a split kernel that visits OCM slice by slice, one slice per part, in ``slots`` places by turns.

    ``tensor`` names it; where empty it is a constant at the external address ``constant_at``.
    """

    param: str
    tensor: str
    constant_at: int
    slices: tuple[Slice, ...]
    slot_bytes: int
    slots: int
    written: bool

    @property
    def in_blocks(self) -> bool:
        """Whether the slices of the tensor are whole aligned blocks: contiguous, each at an aligned offset."""
        return bool(self.tensor) and all(not each.counts and each.offset % ALIGNMENT == 0 for each in self.slices)


@dataclass
class PartStep:
    """Transfers before and after a part's instructions, and where its staged operands lie."""

    before: list[Instruction] = field(default_factory=list)
    after: list[Instruction] = field(default_factory=list)
    staged: dict[str, int] = field(default_factory=dict)


def stage_parts(
    streams: Sequence[Stream],
    slots: Mapping[tuple[str, int], int],
    home: Mapping[str, int],
    count: int,
    depth: int,
) -> list[PartStep]:
    """The transfers of ``count`` parts. With ``depth`` 2 slices come for the next part and go from the last while one runs.

    ``slots``: OCM address of each stream's places. ``home``: external address of tensors.
    """
    return _Stages(streams, slots, home, count, depth).run()


class _Stages:
    def __init__(
        self,
        streams: Sequence[Stream],
        slots: Mapping[tuple[str, int], int],
        home: Mapping[str, int],
        count: int,
        depth: int,
    ) -> None:
        self.slots, self.home, self.count, self.depth = slots, home, count, depth
        self.read = [stream for stream in streams if not stream.written]
        self.written = [stream for stream in streams if stream.written]
        self.turn = {stream.param: _turns(stream) for stream in streams}

    def run(self) -> list[PartStep]:
        return [self.part(index) for index in range(self.count)]

    def part(self, index: int) -> PartStep:
        step = PartStep(staged={param: self.slots[param, turns[index]] for param, turns in self.turn.items()})
        if index == 0 or self.depth == 1:
            step.before += self.loads(index)
        if self.loads(index):
            step.before.append(Wait(IN_TAGS[index % 2]))
        if self.depth == 2 and index + 1 < self.count:
            step.before += self.loads(index + 1)
        if self.written and index >= self.depth:
            step.before.append(Wait(OUT_TAGS[(index - self.depth) % 2]))
        step.after = [self.transfer("out", stream, index, OUT_TAGS[index % 2]) for stream in self.written]
        if self.written and index == self.count - 1:
            step.after += [Wait(OUT_TAGS[each % 2]) for each in range(max(0, self.count - self.depth), self.count)]
        return step

    def loads(self, index: int) -> list[Instruction]:
        """What part ``index`` needs and the part before it did not have."""
        changed = [each for each in self.read if index == 0 or each.slices[index] != each.slices[index - 1]]
        return [self.transfer("in", stream, index, IN_TAGS[index % 2]) for stream in changed]

    def transfer(self, direction: str, stream: Stream, index: int, tag: int) -> Dma:
        piece = stream.slices[index]
        start = self.home[stream.tensor] if stream.tensor else stream.constant_at
        packed = tuple(prod(piece.counts[k + 1 :]) * piece.elem_bytes for k in range(len(piece.counts)))
        place = self.slots[stream.param, self.turn[stream.param][index]]
        return Dma(direction, start + piece.offset, place, piece.counts, piece.strides, packed, piece.elem_bytes, tag)


def _turns(stream: Stream) -> list[int]:
    """Which of its places a stream uses in each part: the next one whenever its slice changes."""
    turns, version = [], 0
    for index, piece in enumerate(stream.slices):
        version += index > 0 and piece != stream.slices[index - 1]
        turns.append(version % stream.slots)
    return turns
