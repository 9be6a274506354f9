"""Kernels whose operands exceed the OCM run in parts: their instructions, and what passes through OCM slice by slice."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from epu.first_fit import align, usable
from epu.in_place import InPlaceSearch
from epu.lowering.lowered import Lowered
from epu.lowering.split import Range, Ranges, region
from epu.ocm_search import OcmSearch, Schedule, part_ranges, sliced_axes
from epu.simulator.machine import Machine
from epu.staging import Stream, slice_of

if TYPE_CHECKING:
    from epu.tir_schedules.kernel import Kernel, Param
    from epu.tir_schedules.kernel_code import KernelCode


@dataclass(frozen=True)
class Part:
    """A kernel's instructions over ranges of its cut axes (none: the whole kernel).

    ``offsets``: of a part in place, bytes from the start of each operand to the part's slice.
    """

    code: KernelCode
    ranges: dict[str, Range]
    offsets: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SplitKernel:
    """The parts of a kernel in order; one part without ranges where it is whole. ``in_place``: no operand is staged."""

    parts: tuple[Part, ...]
    depth: int = 1
    in_place: bool = False

    @property
    def scratch_bytes(self) -> int:
        return max(part.code.scratch_bytes for part in self.parts)

    @property
    def peak_lrm(self) -> int:
        return max(part.code.peak_lrm for part in self.parts)


class OcmSplitter:
    """Splits kernels for one machine; equal kernels are split once."""

    def __init__(self, machine: Machine, schedule: Schedule) -> None:
        self.machine, self.schedule = machine, schedule
        self.known: dict[Hashable, SplitKernel] = {}

    def split(self, lowered: Lowered) -> SplitKernel:
        """The kernel in place where it fits, else staged in parts. Raises CapacityError where even the smallest part does not
        fit."""
        key = lowered.kernel.key
        if key not in self.known:
            self.known[key] = self.parts(lowered)
        return self.known[key]

    def parts(self, lowered: Lowered) -> SplitKernel:
        if whole_bytes(lowered, 0) <= usable(self.machine.ocm_bytes):
            found = InPlaceSearch(lowered, self.machine, self.schedule).run()
            split = SplitKernel(tuple(Part(each.code, each.ranges, each.offsets) for each in found), in_place=True)
            if whole_bytes(lowered, split.scratch_bytes) <= usable(self.machine.ocm_bytes):
                return split
        return self.staged(lowered, self.schedule(lowered, lowered.kernel))

    def staged(self, lowered: Lowered, code: KernelCode) -> SplitKernel:
        """``code``: the whole kernel's instructions."""
        cut, codes = OcmSearch(lowered, code, self.machine, self.schedule).run()
        splits = lowered.splits
        assert splits is not None, "a kernel was cut that cannot be"
        parts = [Part(codes[splits.shape(ranges)], ranges) for ranges in part_ranges(splits, cut.sizes)]
        return SplitKernel(tuple(parts), cut.depth)


def whole_bytes(lowered: Lowered, scratch: int) -> int:
    """OCM that all operands and the scratch take together."""
    once = {lowered.inputs.get(param.name, param.name): param_bytes(param) for param in lowered.kernel.arrays}
    return sum(map(align, once.values())) + (align(scratch) if scratch else 0)


def param_bytes(param: Param) -> int:
    return prod(param.shape) * np.dtype(param.dtype).itemsize


def streams(lowered: Lowered, split: SplitKernel, constants_at: Mapping[str, int]) -> tuple[Stream, ...]:
    """The operands that pass through OCM: sliced ones, and whole constants. ``constants_at``: external address by parameter."""
    if split.in_place:
        return ()
    assert lowered.splits is not None
    names = {**lowered.inputs, **lowered.outputs}
    found = []
    for param in lowered.kernel.arrays:
        labels, size = lowered.kernel.axes[param.name], np.dtype(param.dtype).itemsize
        sliced = bool(sliced_axes(lowered.splits, labels) & set(split.parts[0].ranges))
        if not sliced and param.name in names:
            continue
        slices = tuple(
            slice_of(param.shape, region(lowered.splits, labels, param.shape, part.ranges), size)
            for part in split.parts
        )
        slot = max(each.bytes for each in slices)
        where = (names.get(param.name, ""), constants_at.get(param.name, 0))
        places = split.depth if sliced else 1
        found.append(Stream(param.name, *where, slices, slot, places, param.name in lowered.outputs))
    return tuple(found)


class StagePart:
    """Where the elements of an observed stage of one part lie in the whole stage."""

    def __init__(self, kernel: Kernel, stage: str, ranges: Ranges) -> None:
        shape = [int(extent) for extent in kernel.tensors[stage].shape]
        own = [ranges.get(axis, (0, extent)) for axis, extent in zip(kernel.axes[stage], shape)]
        self.steps = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        self.extents = [stop - start for start, stop in own]
        self.first = sum(start * step for (start, _), step in zip(own, self.steps))

    def offset(self, element: int) -> int:
        """Element of the whole stage, counted from the part's first, for an element of the part; so also for strides."""
        found = 0
        for extent, step in zip(self.extents[:0:-1], self.steps[:0:-1]):
            element, digit = divmod(element, extent)
            found += digit * step
        return found + element * self.steps[0]
