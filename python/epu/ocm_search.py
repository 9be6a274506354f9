"""The cheapest cut of a kernel into parts that fit the OCM.

A cut gives some of the kernel's axes a part size. An operand with a dimension along a cut axis is staged slice by slice; the
others lie in OCM whole. All cuts are ranked by their transfers, the best few are scheduled and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, permutations, product
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from epu.errors import CapacityError
from epu.first_fit import align, usable
from epu.lowering.lowered import Lowered
from epu.lowering.split import Range, Splits
from epu.simulator.machine import Machine

if TYPE_CHECKING:
    from epu.tir_schedules.kernel import Param
    from epu.tir_schedules.kernel_code import KernelCode

Sizes = Mapping[str, int]  # part size of each cut axis, outermost loop first
Schedule = Callable[..., "KernelCode"]  # of a node's Lowered, a kernel of its family, and the shapes of whole operands

MOST_CUTS = 20_000  # looked at
SLACK = 1.5  # of the fewest cycles by transfers: cuts within it are looked at closer
OF_EACH_COUNT = 2  # of these, for each number of parts
SCHEDULED = 12  # counted exactly; of a kernel not worth it, or slow to emit, FEW
FEW, LIGHT, LONG = 3, 8_000, 400  # cuts, cycles, instructions


@dataclass(frozen=True)
class Cut:
    """Part sizes of the cut axes in loop order, places in OCM for each staged operand, number of parts, estimated cycles."""

    sizes: dict[str, int]
    depth: int
    count: int
    read: int
    written: int
    cycles: float = 0.0

    def beside(self, compute: float) -> Cut:
        """With the cycles of a computation: transfers run beside it where there are two places, else before and after it."""
        both = self.read + self.written
        at_once = max(compute, self.read, self.written) + both / self.count
        return replace(self, cycles=compute + both if self.depth == 1 else at_once)


@dataclass(frozen=True)
class Burst:
    """One transfer of an operand's slice, and the cut axes along which it is sliced."""

    axes: set[str]
    written: bool
    cycles: int


def code_cycles(code: KernelCode, machine: Machine) -> int:
    """Cycles of the instructions one after the other."""
    return sum(instruction.cycles(machine).total for instruction in code.instructions)


class OcmSearch:
    """The cheapest cut of one kernel."""

    def __init__(self, lowered: Lowered, code: KernelCode, machine: Machine, schedule: Schedule) -> None:
        self.lowered, self.kernel, self.machine, self.schedule = lowered, lowered.kernel, machine, schedule
        self.capacity = usable(machine.ocm_bytes)
        self.splits = lowered.splits or Splits({}, lambda ranges: (), lambda shape: lowered.kernel)
        self.compute, self.instructions = code_cycles(code, machine), len(code.instructions)
        self.burst_cycles = cache(machine.ext_cycles)

    def run(self) -> tuple[Cut, dict[Hashable, KernelCode]]:
        found = []
        problem = self.too_small()
        for cut in self.shortlist():
            try:
                found.append(self.scheduled(cut))
            except CapacityError as error:  # of the LRM
                problem = error
        if not found:
            raise problem
        return min(found, key=lambda each: each[0].cycles)

    def shortlist(self) -> list[Cut]:
        """Cuts worth scheduling: of those near the fewest cycles the best of each number of parts, equal and few parts first."""
        cuts = list(self.cuts())
        limit = SLACK * min((cut.cycles for cut in cuts), default=0.0)
        near = [cut for cut in cuts if cut.cycles <= limit]
        near.sort(key=lambda cut: (self.uneven(cut), cut.count, cut.cycles, self.strided(cut)))
        best = [cut for _, same in groupby(near, key=lambda cut: cut.count) for cut in list(same)[:OF_EACH_COUNT]]
        return best[: SCHEDULED if self.compute > LIGHT and self.instructions < LONG else FEW]

    def uneven(self, cut: Cut) -> bool:
        return any(self.splits.axes[axis] % size for axis, size in cut.sizes.items())

    def strided(self, cut: Cut) -> int:
        """How many operands have slices that are not contiguous."""
        return sum(not self.contiguous(param, cut.sizes) for param in self.kernel.arrays)

    def contiguous(self, param: Param, sizes: Sizes) -> bool:
        outer = 1
        for size, whole in zip(self.extents(param.name, param.shape, sizes), param.shape):
            if size < whole and outer > 1:
                return False
            outer *= size
        return True

    def cuts(self) -> Iterator[Cut]:
        axes = {axis: extent for axis, extent in self.splits.axes.items() if extent > 1}
        most = int(MOST_CUTS ** (1 / max(len(axes), 1)))
        for chosen in product(*(part_sizes(extent, most) for extent in axes.values())):
            sizes = {axis: size for axis, size in zip(axes, chosen) if size < axes[axis]}
            depth = next((d for d in (2, 1) if self.footprint(sizes, d) <= self.capacity), None)
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
        return cut.beside(self.compute)

    def bursts(self, sizes: Sizes) -> list[Burst]:
        return [
            Burst(
                self.axes_of(param.name, sizes),
                param.role == "output",
                self.burst_cycles("out" if param.role == "output" else "in", self.slot_bytes(param, sizes)),
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

    def scheduled(self, cut: Cut) -> tuple[Cut, dict[Hashable, KernelCode]]:
        """The cut with its cycles by the parts' instructions, and the instructions by the parts' shape."""
        codes: dict[Hashable, KernelCode] = {}
        shapes = Counter(self.splits.shape(ranges) for ranges in part_ranges(self.splits, cut.sizes))
        for shape in shapes:
            codes[shape] = self.schedule(self.lowered, self.splits.build(shape))
        scratch = max(code.scratch_bytes for code in codes.values())
        assert scratch <= self.scratch(cut.sizes), (
            f"kernel {self.kernel.family} has OCM scratch beside its padded stages"
        )
        return cut.beside(
            sum(code_cycles(codes[shape], self.machine) * count for shape, count in shapes.items())
        ), codes

    def too_small(self) -> CapacityError:
        node, ones = self.lowered.node, dict.fromkeys(self.splits.axes, 1)
        operands = ", ".join(f"{param.name} {self.slot_bytes(param, ones)}" for param in self.kernel.arrays)
        what = "its smallest part needs" if ones else "it cannot be split and its operands need"
        return CapacityError(
            f"ONNX node '{node.name}' ({node.op}): {what} {self.footprint(ones, 1)} bytes of OCM ({operands}, scratch "
            f"{self.scratch(ones)}), the OCM has {self.capacity}. Use a larger ocm_size, or cut "
            "the model before the node (epu cut)."
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
