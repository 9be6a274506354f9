"""Along which axes a kernel can be cut into smaller kernels of its family, and how the smaller ones are made."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epu.tir_schedules.convolution import ConvShape
    from epu.tir_schedules.elementwise import Body, Points
    from epu.tir_schedules.kernel import Kernel
    from epu.tir_schedules.movement import PoolShape

Range = tuple[int, int]  # first position, one after the last
Ranges = Mapping[str, Range]  # of the axes that are cut
Operands = Mapping[str, tuple[str, Sequence[int], str]]


@dataclass(frozen=True)
class Halo:
    """Input positions that a range of output positions ``axis`` reads: neighbouring ranges share some.

    Output position i reads [i * stride, i * stride + reach) of the padded input.
    """

    axis: str
    extent: int  # input positions without padding
    stride: int
    reach: int
    before: int  # padding in front

    def padded(self, out: Range) -> Range:
        """Positions counted from the first one that is no padding."""
        return out[0] * self.stride - self.before, (out[1] - 1) * self.stride - self.before + self.reach

    def inside(self, out: Range) -> Range:
        """The positions without padding."""
        start, stop = self.padded(out)
        return max(start, 0), min(stop, self.extent)

    def padding(self, out: Range) -> tuple[int, int]:
        """Padding in front and behind."""
        start, stop = self.padded(out)
        return max(-start, 0), max(stop - self.extent, 0)

    def longest(self, size: int) -> int:
        """Padded positions for ``size`` output positions."""
        return (size - 1) * self.stride + self.reach


@dataclass(frozen=True)
class Splits:
    """How a kernel is cut along some of its output's axes.

    ``axes``: extent of each axis that may be cut, outermost first; an operand is sliced along its dimensions that carry a cut
    axis. ``shape``: the smaller kernel's shape for the ranges of the cut axes. ``build``: a shape's kernel.
    ``halos``: dimensions of operands and padded stages that follow an output axis.
    """

    axes: dict[str, int]
    shape: Callable[[Ranges], Hashable]
    build: Callable[[Any], Kernel]
    halos: dict[str, Halo] = field(default_factory=dict)


def region(splits: Splits, labels: Sequence[str], shape: Sequence[int], ranges: Ranges) -> list[Range]:
    """The positions of each dimension that one part touches."""
    found = []
    for label, extent in zip(labels, shape):
        halo = splits.halos.get(label)
        own = ranges.get(halo.axis if halo else label)
        found.append((0, extent) if own is None else halo.inside(own) if halo else own)
    return found


def by_fields(whole: Any, fields: dict[str, str], build: Callable[[Any], Kernel]) -> Splits:
    """Splits of a kernel whose shape is a dataclass: axis → the field with its extent."""
    axes = {axis: getattr(whole, name) for axis, name in fields.items()}
    return Splits(axes, lambda ranges: replace(whole, **_changed(fields, ranges)), build)


def _changed(fields: dict[str, str], ranges: Ranges) -> dict[str, int]:
    return {name: ranges[axis][1] - ranges[axis][0] for axis, name in fields.items() if axis in ranges}


def by_windows(whole: ConvShape | PoolShape, fields: dict[str, str], build: Callable[[Any], Kernel]) -> Splits:
    """Splits of a kernel that slides windows: along ``fields``, and along output rows i and columns j with their halos.

    An axis whose first or last window lies in the padding alone is not cut.
    """
    halos = {}
    sizes = zip("HW", "ij", (whole.height, whole.width), whole.strides, whole.kernel, whole.dilations, whole.pads)
    for label, axis, extent, stride, taps, dilation, before in sizes:
        halos[label] = Halo(axis, extent, stride, dilation * (taps - 1) + 1, before)
    outer = {axis: getattr(whole, name) for axis, name in fields.items()}
    windows = {halo.axis: out for halo, out in zip(halos.values(), whole.out) if _never_empty(halo, out)}

    def shape(ranges: Ranges) -> Hashable:
        return _windowed(whole, _changed(fields, ranges), halos, ranges)

    return Splits({**outer, **windows}, shape, build, halos)


def _never_empty(halo: Halo, out: int) -> bool:
    return all(start < stop for start, stop in (halo.inside((0, 1)), halo.inside((out - 1, out))))


def _windowed(whole: ConvShape | PoolShape, changed: dict[str, int], halos: dict[str, Halo], ranges: Ranges) -> Any:
    size, pads = [whole.height, whole.width], list(whole.pads)
    for place, halo in enumerate(halos.values()):
        if halo.axis in ranges:
            start, stop = halo.inside(ranges[halo.axis])
            size[place] = stop - start
            pads[place], pads[place + 2] = halo.padding(ranges[halo.axis])
    return replace(whole, height=size[0], width=size[1], pads=tuple(pads), **changed)  # type: ignore[arg-type]


def by_extents(axes: Sequence[str], extents: Sequence[int], build: Callable[[Any], Kernel]) -> Splits:
    """Splits of a kernel whose shape is the tuple of its axes' extents."""
    whole = dict(zip(axes, extents))

    def shape(ranges: Ranges) -> Hashable:
        return tuple(ranges[axis][1] - ranges[axis][0] if axis in ranges else whole[axis] for axis in axes)

    return Splits(whole, shape, build)


def by_rows(rows: int, build: Callable[[int], Kernel]) -> tuple[Kernel, Splits]:
    """A kernel over rows, axis m, and its splits; ``build`` makes one of any number of rows."""
    return build(rows), by_extents(("m",), (rows,), lambda extents: build(extents[0]))


def elementwise_kernel(
    name: str,
    shape: Sequence[int],
    dtype: str,
    operands: Operands,
    body: Body,
    scalars: Sequence[str] = (),
    tables: dict[str, tuple[int, str]] | None = None,
    seen: Body | None = None,
) -> tuple[Kernel, Splits]:
    """An element-wise kernel (see ``epu.tir_schedules.elementwise``) and its splits along its collapsed axes."""
    from epu.tir_schedules.elementwise import elementwise

    return _pointwise(
        lambda at, given: elementwise(name, at, dtype, given, body, scalars, tables, seen), shape, operands
    )


def staged_kernel(
    name: str,
    shape: Sequence[int],
    operands: Operands,
    program: Callable[[Points], Any],
    scalars: Sequence[str] = (),
    tables: dict[str, tuple[int, str]] | None = None,
) -> tuple[Kernel, Splits]:
    """An element-wise kernel of several stages with an int32 result, and its splits."""
    from epu.tir_schedules.elementwise import staged

    return _pointwise(lambda at, given: staged(name, at, "int32", given, program, scalars, tables), shape, operands)


def _pointwise(
    family: Callable[[Sequence[int], dict[str, tuple[str, Sequence[int], str]]], Kernel],
    shape: Sequence[int],
    operands: Operands,
) -> tuple[Kernel, Splits]:
    whole = family(shape, dict(operands))
    axes = whole.axes["Y"]

    def build(extents: tuple[int, ...]) -> Kernel:
        sizes = dict(zip(axes, extents))
        smaller: dict[str, tuple[str, Sequence[int], str]] = {
            param: (role, tuple(sizes[axis] if axis in whole.axes[param] else 1 for axis in axes), kind)
            for param, (role, _, kind) in operands.items()
        }
        return family(extents, smaller)

    return whole, by_extents(axes, whole.params[-1].shape, build)


def transpose_kernel(shape: Sequence[int], permutation: Sequence[int], dtype: str) -> tuple[Kernel, Splits]:
    """A transpose and its splits along the axes of its output."""
    from epu.tir_schedules.movement import transpose

    whole = transpose(shape, permutation, dtype)

    def build(extents: tuple[int, ...]) -> Kernel:
        sizes = dict(zip(permutation, extents))
        return transpose([sizes[axis] for axis in range(len(sizes))], permutation, dtype)

    return whole, by_extents(whole.axes["Y"], whole.params[-1].shape, build)
