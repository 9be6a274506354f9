"""Parts of a kernel that fits the OCM: along an axis without good divisors, where two parts need fewer cycles than one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from epu.errors import CapacityError
from epu.lowering.lowered import Lowered
from epu.lowering.split import Range, region
from epu.ocm_search import Schedule, code_cycles
from epu.simulator.machine import Machine
from epu.staging import slice_of

if TYPE_CHECKING:
    from epu.tir_schedules.kernel import Kernel
    from epu.tir_schedules.kernel_code import KernelCode

LIGHT = 4_000  # cycles of a kernel that is not worth a search
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
    """The cut of fewest counted cycles, axis by axis."""

    def __init__(self, lowered: Lowered, code: KernelCode, machine: Machine, schedule: Schedule) -> None:
        self.lowered, self.code, self.machine, self.schedule = lowered, code, machine, schedule
        self.known: dict[Hashable, KernelCode] = {}

    def run(self) -> tuple[PlacedPart, ...]:
        """The parts; one without ranges where none is better."""
        best: tuple[PlacedPart, ...] = (PlacedPart(self.code),)
        cycles, cuts = code_cycles(self.code, self.machine), Cuts()
        for axis in self.awkward_axes() if cycles > LIGHT else []:
            better = cuts
            for ranges in self.candidates(axis):
                found = self.parts({**cuts, axis: ranges})
                total = sum(code_cycles(part.code, self.machine) for part in found)
                if found and total < cycles:
                    best, cycles, better = found, total, {**cuts, axis: ranges}
            cuts = better
        return best

    def awkward_axes(self) -> list[str]:
        """The axes that keep less of the array busy than they could, the longest first."""
        splits = self.lowered.splits
        axes = splits.axes if splits is not None else {}
        return sorted((axis for axis, extent in axes.items() if self.is_awkward(extent)), key=lambda axis: -axes[axis])

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

    def parts(self, cuts: Cuts) -> tuple[PlacedPart, ...]:
        """The parts of a cut; none where a slice cannot lie in place or the LRM is too small."""
        try:
            found = [self.part(dict(zip(cuts, ranges))) for ranges in product(*cuts.values())]
        except CapacityError:
            return ()
        return tuple(part for part in found if part is not None) if None not in found else ()

    def part(self, ranges: dict[str, Range]) -> PlacedPart | None:
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
            self.known[key] = self.schedule(self.lowered, kernel, whole)
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
