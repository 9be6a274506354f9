"""Cuts a kernel whose operands exceed the OCM into parts that fit: the cheapest cut by estimated cycles.

A cut gives some of the kernel's axes a part size. An operand with a dimension along a cut axis is staged slice by slice; the
others lie in OCM whole. All cuts are ranked by their transfers, the best few are scheduled and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations, product
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from epu.errors import CapacityError
from epu.first_fit import align
from epu.lowering.lowered import Lowered
from epu.lowering.split import Range, Ranges, Splits
from epu.simulator.machine import Machine
from epu.staging import Stream, slice_of

if TYPE_CHECKING:
    from epu.tir_schedules.kernel import Kernel, Param
    from epu.tir_schedules.kernel_code import KernelCode

Sizes = Mapping[str, int]  # part size of each cut axis, outermost loop first
Schedule = Callable[[Lowered, "Kernel"], "KernelCode"]

MOST_CUTS = 20_000  # looked at
SCHEDULED = 4  # of these, counted exactly
SLACK = 1.1  # of the fewest estimated cycles: within it, fewer parts come first


@dataclass(frozen=True)
class Cut:
    """Part sizes of the cut axes in loop order, places in OCM for each staged operand, number of parts, estimated cycles."""

    sizes: dict[str, int]
    depth: int
    count: int
    read: int
    written: int
    cycles: float = 0.0

    def total(self, compute: int) -> float:
        """Cycles with a computation: transfers run beside it where there are two places, else after each other."""
        both = self.read + self.written
        return compute + both if self.depth == 1 else max(compute, self.read, self.written) + both / self.count


@dataclass(frozen=True)
class Burst:
    """One transfer of an operand's slice, and the cut axes along which it is sliced."""

    axes: set[str]
    written: bool
    cycles: int


@dataclass(frozen=True)
class Part:
    """A kernel's instructions over ranges of its cut axes (none: the whole kernel)."""

    code: KernelCode
    ranges: dict[str, Range]


@dataclass(frozen=True)
class SplitKernel:
    """The parts of a kernel in order; one part without ranges where it is whole."""

    parts: tuple[Part, ...]
    depth: int = 1

    @property
    def scratch_bytes(self) -> int:
        return max(part.code.scratch_bytes for part in self.parts)

    @property
    def peak_lrm(self) -> int:
        return max(part.code.peak_lrm for part in self.parts)


class OcmSplitter:
    """Splits kernels for one machine; equal kernels are split once."""

    def __init__(self, machine: Machine, capacity: int, schedule: Schedule) -> None:
        self.machine, self.capacity, self.schedule = machine, capacity, schedule
        self.known: dict[Hashable, SplitKernel] = {}
        self.burst_cycles = cache(machine.ext_cycles)

    def split(self, lowered: Lowered, code: KernelCode) -> SplitKernel:
        """The whole kernel where it fits, else its parts. Raises CapacityError where even the smallest part does not fit.

        ``code``: the whole kernel's instructions.
        """
        if whole_bytes(lowered, code.scratch_bytes) <= self.capacity:
            return SplitKernel((Part(code, {}),))
        key = lowered.kernel.key
        if key not in self.known:
            self.known[key] = _Search(self, lowered, code).run()
        return self.known[key]


def whole_bytes(lowered: Lowered, scratch: int) -> int:
    """OCM that all operands and the scratch take together."""
    once = {lowered.inputs.get(param.name, param.name): param_bytes(param) for param in lowered.kernel.arrays}
    return sum(map(align, once.values())) + (align(scratch) if scratch else 0)


def param_bytes(param: Param) -> int:
    return prod(param.shape) * np.dtype(param.dtype).itemsize


def code_cycles(code: KernelCode, machine: Machine) -> int:
    """Cycles of the instructions one after the other."""
    return sum(instruction.cycles(machine).total for instruction in code.instructions)


class _Search:
    """The cheapest cut of one kernel."""

    def __init__(self, owner: OcmSplitter, lowered: Lowered, code: KernelCode) -> None:
        self.owner, self.lowered, self.kernel = owner, lowered, lowered.kernel
        self.splits = lowered.splits or Splits({}, lambda ranges: (), lambda shape: lowered.kernel)
        self.compute = code_cycles(code, owner.machine)

    def run(self) -> SplitKernel:
        found: list[tuple[float, SplitKernel]] = []
        problem = self.too_small()
        for cut in self.shortlist():
            try:
                found.append(self.scheduled(cut))
            except CapacityError as error:  # of the LRM
                problem = error
        if not found:
            raise problem
        return min(found, key=lambda each: each[0])[1]

    def shortlist(self) -> list[Cut]:
        """Cuts worth scheduling: near the fewest cycles, equal parts first, then few parts, then contiguous slices."""
        cuts = list(self.cuts())
        limit = SLACK * min((cut.cycles for cut in cuts), default=0.0)
        near = [cut for cut in cuts if cut.cycles <= limit]
        return sorted(near, key=lambda cut: (self.uneven(cut), cut.count, self.strided(cut), cut.cycles))[:SCHEDULED]

    def uneven(self, cut: Cut) -> bool:
        return any(self.splits.axes[axis] % size for axis, size in cut.sizes.items())

    def strided(self, cut: Cut) -> int:
        """Operands whose slices are not contiguous: cut inside a dimension that is not the first to matter."""
        count = 0
        for param in self.kernel.arrays:
            sizes = self.extents(param.name, param.shape, cut.sizes)
            wide = [k for k, size in enumerate(sizes) if size > 1]
            count += (
                any(size < whole for size, whole in zip(sizes[wide[0] + 1 :], param.shape[wide[0] + 1 :]))
                if wide
                else 0
            )
        return count

    def cuts(self) -> Iterator[Cut]:
        axes = {axis: extent for axis, extent in self.splits.axes.items() if extent > 1}
        most = int(MOST_CUTS ** (1 / max(len(axes), 1)))
        for chosen in product(*(part_sizes(extent, most) for extent in axes.values())):
            sizes = {axis: size for axis, size in zip(axes, chosen) if size < axes[axis]}
            depth = next((d for d in (2, 1) if self.footprint(sizes, d) <= self.owner.capacity), None)
            if sizes and depth:
                yield self.ordered(sizes, depth)

    def footprint(self, sizes: Sizes, depth: int) -> int:
        """OCM bytes of a cut: ``depth`` places for what is staged, one for the rest, and the scratch."""
        total = 0
        for param in self.kernel.arrays:
            places = depth if self.axes_of(param.name, sizes) else 1
            total += places * align(self.slot_bytes(param, sizes))
        return total + self.scratch(sizes)

    def scratch(self, sizes: Sizes) -> int:
        """Bytes of the stages that lie in OCM."""
        padded = {stage: self.kernel.tensors[stage] for stage in self.kernel.padded}
        return sum(
            align(prod(self.extents(stage, tensor.shape, sizes)) * np.dtype(tensor.dtype).itemsize)
            for stage, tensor in padded.items()
        )

    def slot_bytes(self, param: Param, sizes: Sizes) -> int:
        return prod(self.extents(param.name, param.shape, sizes)) * np.dtype(param.dtype).itemsize

    def extents(self, name: str, shape: Sequence[int], sizes: Sizes) -> list[int]:
        """Largest extent of each dimension of a parameter or stage in one part."""
        found = []
        for label, whole in zip(self.kernel.axes[name], shape):
            halo = self.splits.halos.get(label)
            size = sizes.get(halo.axis if halo else label)
            part = int(whole) if size is None else halo.longest(size) if halo else size
            found.append(min(part, int(whole)))
        return found

    def axes_of(self, name: str, sizes: Sizes) -> set[str]:
        """The cut axes along which an operand is sliced."""
        return sliced_axes(self.splits, self.kernel.axes[name]) & set(sizes)

    def ordered(self, sizes: dict[str, int], depth: int) -> Cut:
        """The cut with the loop order of fewest transfers."""
        bursts = self.bursts(sizes)
        orders = permutations(sizes) if len(sizes) <= 3 else [tuple(sizes)]
        order = min(orders, key=lambda each: sum(self.transfers(bursts, sizes, each)))
        read, written = self.transfers(bursts, sizes, order)
        cut = Cut({axis: sizes[axis] for axis in order}, depth, prod(self.counts(sizes, order)), read, written)
        return replace(cut, cycles=cut.total(self.compute))

    def bursts(self, sizes: Sizes) -> list[Burst]:
        return [
            Burst(
                self.axes_of(param.name, sizes),
                param.role == "output",
                self.owner.burst_cycles("out" if param.role == "output" else "in", self.slot_bytes(param, sizes)),
            )
            for param in self.kernel.arrays
        ]

    def counts(self, sizes: Sizes, order: Sequence[str]) -> list[int]:
        return [ceil(self.splits.axes[axis] / sizes[axis]) for axis in order]

    def transfers(self, bursts: Sequence[Burst], sizes: Sizes, order: Sequence[str]) -> tuple[int, int]:
        """Cycles of all reads and of all writes: a slice is brought whenever it is another than the part's before."""
        counts, cycles = self.counts(sizes, order), [0, 0]
        for burst in bursts:
            inner = max((k for k, axis in enumerate(order) if axis in burst.axes), default=-1)
            cycles[burst.written] += burst.cycles * prod(counts[: inner + 1])
        return cycles[0], cycles[1]

    def scheduled(self, cut: Cut) -> tuple[float, SplitKernel]:
        """A cut with its instructions, and its cycles by their own cost."""
        codes: dict[Hashable, KernelCode] = {}
        parts = []
        for ranges in part_ranges(self.splits, cut.sizes):
            shape = self.splits.shape(ranges)
            if shape not in codes:
                codes[shape] = self.owner.schedule(self.lowered, self.splits.build(shape))
            parts.append(Part(codes[shape], ranges))
        compute = sum(code_cycles(part.code, self.owner.machine) for part in parts)
        return cut.total(compute), SplitKernel(tuple(parts), cut.depth)

    def too_small(self) -> CapacityError:
        node, ones = self.lowered.node, dict.fromkeys(self.splits.axes, 1)
        operands = ", ".join(f"{param.name} {self.slot_bytes(param, ones)}" for param in self.kernel.arrays)
        what = "its smallest part needs" if ones else "it cannot be split and its operands need"
        return CapacityError(
            f"ONNX node '{node.name}' ({node.op}): {what} {self.footprint(ones, 1)} bytes of OCM ({operands}, scratch "
            f"{self.scratch(ones)}), the OCM has {self.owner.capacity}. Use a larger ocm_size, or leave the node on the host."
        )


def part_sizes(extent: int, most: int) -> list[int]:
    """Sizes worth trying, the whole extent first: its divisors, and those of few parts; at most ``most``, thinned evenly."""
    even = {d for d in range(1, int(extent**0.5) + 1) if extent % d == 0}
    few = {ceil(extent / n) for n in (2, 3, 4, 6, 8, 16, 32, 64)}
    found = sorted(even | {extent // d for d in even} | few, reverse=True)
    step = max(1.0, (len(found) - 1) / max(most - 1, 1))
    return [found[round(k * step)] for k in range(int((len(found) - 1) / step + 1e-9) + 1)]


def part_ranges(splits: Splits, sizes: Sizes) -> Iterator[dict[str, Range]]:
    """Ranges of the cut axes, part by part, the last axis fastest."""
    steps = [
        [(start, min(start + size, splits.axes[axis])) for start in range(0, splits.axes[axis], size)]
        for axis, size in sizes.items()
    ]
    for chosen in product(*steps):
        yield dict(zip(sizes, chosen))


def sliced_axes(splits: Splits, labels: Sequence[str]) -> set[str]:
    """The axes of the splits that an operand with these dimensions is sliced along."""
    return {splits.halos[label].axis if label in splits.halos else label for label in labels}


def region(splits: Splits, labels: Sequence[str], shape: Sequence[int], ranges: Ranges) -> list[Range]:
    """The positions of each dimension that one part touches."""
    found = []
    for label, extent in zip(labels, shape):
        halo = splits.halos.get(label)
        own = ranges.get(halo.axis if halo else label)
        found.append((0, extent) if own is None else halo.inside(own) if halo else own)
    return found


def streams(lowered: Lowered, split: SplitKernel, constants_at: Mapping[str, int]) -> tuple[Stream, ...]:
    """The operands that pass through OCM: sliced ones, and whole constants. ``constants_at``: external address by parameter."""
    if len(split.parts) == 1:
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


def tap_shift(kernel: Kernel, stage: str, ranges: Ranges) -> int:
    """Elements of an observed stage that come before a part's own; the stage must be cut along its first axis only."""
    labels, shape = kernel.axes[stage], [int(extent) for extent in kernel.tensors[stage].shape]
    cut = [axis for axis in labels if axis in ranges]
    assert cut in ([], [labels[0]]), f"stage {stage} is cut along {cut}"
    return ranges[cut[0]][0] * prod(shape[1:]) if cut else 0
