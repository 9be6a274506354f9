"""Parts of a kernel that fits the OCM: along an axis without good divisors, where two parts need fewer cycles than one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import product
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from epu.lowering.lowered import Lowered
from epu.lowering.split import Range, region
from epu.ocm_search import Schedule, code_cycles
from epu.simulator.machine import Machine
from epu.staging import slice_of

if TYPE_CHECKING:
    from epu.tir_schedules.kernel import Kernel
    from epu.tir_schedules.kernel_code import KernelCode

LIGHT = 4_000  # cycles of a kernel that is not worth a search
LONG = 4_000  # instructions of a part that is not worth having
BUSY = 0.9  # part of the array that a good extent keeps busy
UNITS = (32, 8, 4)  # part sizes are multiples of these, and of the array

Cuts = dict[str, tuple[Range, ...]]  # the ranges of each cut axis


@dataclass(frozen=True)
class PlacedPart:
    """Instructions over ranges of the cut axes; ``offsets``: bytes from each operand's start to the part's slice."""

    code: KernelCode
    ranges: dict[str, Range] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)


class InPlaceSearch:
    """The cut of fewest counted cycles: all awkward axes cut, then one axis after the other cut better or not at all."""

    def __init__(self, lowered: Lowered, machine: Machine, schedule: Schedule) -> None:
        self.lowered, self.machine, self.schedule = lowered, machine, schedule
        self.known: dict[Hashable, KernelCode] = {}

    def run(self) -> tuple[PlacedPart, ...]:
        """The parts; one without ranges where none is better. Raises CapacityError where the LRM is too small."""
        axes = self.awkward_axes()
        whole = self.parts({}, None if not axes else LONG)
        if whole and (not axes or self.cycles(whole) < LIGHT):
            return whole
        cuts = {axis: self.candidates(axis)[-1] for axis in axes}
        best = min(self.parts(cuts), whole, key=self.cycles)
        for axis in axes:
            for ranges in (*self.candidates(axis)[:-1], None):
                changed = {**cuts, axis: ranges} if ranges else {each: cuts[each] for each in cuts if each != axis}
                found = self.parts(changed)
                if self.cycles(found) < self.cycles(best):
                    best, cuts = found, changed
        return best or self.parts({}, None)

    def cycles(self, parts: tuple[PlacedPart, ...]) -> float:
        return sum(code_cycles(part.code, self.machine) for part in parts) if parts else inf

    def awkward_axes(self) -> list[str]:
        """The axes that keep less of the array busy than they could."""
        splits = self.lowered.splits
        axes = splits.axes if splits is not None else {}
        return [axis for axis, extent in axes.items() if self.is_awkward(extent) and self.candidates(axis)]

    def is_awkward(self, extent: int) -> bool:
        rows, cols = self.machine.rows, self.machine.cols
        if extent <= min(rows, cols):
            return False
        most = max(r * c for r in _divisors(extent, rows) for c in _divisors(extent // r, cols))
        return most < BUSY * min(extent, rows * cols)

    def candidates(self, axis: str) -> list[tuple[Range, ...]]:
        """Cuts into a multiple of a good unit and the rest."""
        assert self.lowered.splits is not None
        extent = self.lowered.splits.axes[axis]
        units = (self.machine.pes, self.machine.cols, *UNITS)
        sizes = {extent // unit * unit for unit in units if unit <= extent}
        return [((0, size), (size, extent)) for size in sorted(sizes) if extent // 2 <= size < extent]

    def parts(self, cuts: Cuts, most: int | None = LONG) -> tuple[PlacedPart, ...]:
        """The parts of a cut; none where a slice cannot lie in place, or a part has more than ``most`` instructions."""
        from epu.tir_schedules.kernel_code import LongCode

        found = []
        try:
            for ranges in product(*cuts.values()):
                found.append(self.part(dict(zip(cuts, ranges)), most))
        except LongCode:
            return ()
        return tuple(part for part in found if part is not None) if None not in found else ()

    def part(self, ranges: dict[str, Range], most: int | None) -> PlacedPart | None:
        if not ranges:
            return PlacedPart(self.schedule(self.lowered, self.lowered.kernel, None, most))
        splits = self.lowered.splits
        assert splits is not None
        shape = splits.shape(ranges)
        kernel = splits.build(shape)
        places = dict(self.places(kernel, ranges))
        if None in places.values():
            return None
        whole = {name: place[1] for name, place in places.items() if place is not None and place[1]}
        key = (shape, tuple(whole.items()))
        if key not in self.known:
            self.known[key] = self.schedule(self.lowered, kernel, whole, most)
        return PlacedPart(self.known[key], ranges, {name: place[0] for name, place in places.items() if place})

    def places(
        self, kernel: Kernel, ranges: dict[str, Range]
    ) -> Iterator[tuple[str, tuple[int, tuple[int, ...]] | None]]:
        """Offset of each operand's slice, and the operand's shape where the slice is not contiguous."""
        splits = self.lowered.splits
        assert splits is not None
        smaller = {param.name: param.shape for param in kernel.arrays}
        for param in self.lowered.kernel.arrays:
            box = region(splits, self.lowered.kernel.axes[param.name], param.shape, ranges)
            piece = slice_of(param.shape, box, np.dtype(param.dtype).itemsize)
            own = smaller[param.name]
            if not piece.counts:
                yield param.name, (piece.offset, ())
            elif own == tuple(stop - start for start, stop in box):
                yield param.name, (piece.offset, param.shape)
            else:
                yield param.name, None


def _divisors(extent: int, limit: int) -> list[int]:
    return [d for d in range(1, min(extent, limit) + 1) if extent % d == 0]


__all__ = ["InPlaceSearch", "PlacedPart"]
