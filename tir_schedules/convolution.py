"""Families of int8 convolution: general (systolic array, grouped too) and depthwise (products within a PE)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import gcd
from typing import Any

from epu.simulator.machine import Machine

from .kernel import Kernel, Param
from .requantise import requantise
from .tiling import Cut, Tiling, divisor
from .tvm_api import te, tir
from .windows import Windows

PORT_WORD = 4  # bytes
MOST_FILTERS = 128  # of a group; with more, a PE has so many products for each byte of a patch that idle ones cost more


@dataclass(frozen=True)
class ConvShape(Windows):
    """NCHW input [batch, groups * channels, height, width]; weights [groups * filters, channels, kh, kw].

    ``pads`` is (top, left, bottom, right); padding reads ``pad_value`` (the input's zero point). ``window_terms``: the
    filters' zero points times the sums of the windows are subtracted.
    """

    batch: int
    groups: int
    channels: int
    filters: int
    height: int
    width: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]
    bias: bool
    per_channel: bool
    rounding: str
    pad_value: int = 0
    dtype: str = "int8"
    x_dtype: str = "int8"
    w_dtype: str = "int8"
    observed: bool = False  # whether the sum before requantisation can be seen
    window_terms: bool = False
    integer: bool = False  # the result is the int32 sum itself
    addend: bool = False  # a value per filter is added after the scaling, in the place of the zero point
    idle: int = 0  # columns at the end of the kernel whose weights are 0, so that a row of a patch is whole words

    def in_words(self) -> ConvShape:
        """The same convolution with whole words of taps in a row, where its patches come over the port cheaper by more than the
        products cost: the port takes a word for four bytes that follow each other, but for each byte of any other count.

        Only where the input is padded anyway, by one or more columns of zeros in the weights.
        """
        columns = self.kernel[1]
        idle = -columns % PORT_WORD
        few = self.depthwise or (3 * idle <= columns and self.filters <= MOST_FILTERS)
        if not idle or columns < PORT_WORD - 1 or self.dilations[1] != 1 or not any(self.pads) or not few:
            return self
        top, left, bottom, right = self.pads
        return replace(self, kernel=(self.kernel[0], columns + idle), pads=(top, left, bottom, right + idle), idle=idle)

    @property
    def bytes_per_output(self) -> int:
        """LRM of an output: its sum, the sum with what is added, temporaries of 64 bits, the result."""
        return (
            4
            + (4 if self.dtype == "int32" else 1)
            + (4 if self.bias or self.window_terms else 0)
            + 12 * self.window_terms
        )

    @property
    def bytes_per_filter(self) -> int:
        return 4 * (self.bias + self.addend + 2 * self.per_channel + self.window_terms)

    @property
    def depthwise(self) -> bool:
        return self.channels == 1 and self.filters == 1 and self.groups > 1

    @property
    def macs(self) -> int:
        return (
            self.batch
            * self.groups
            * self.filters
            * self.channels
            * self.kernel[0]
            * (self.kernel[1] - self.idle)
            * self.out[0]
            * self.out[1]
        )


def convolution(shape: ConvShape) -> Kernel:
    """Parameters X [batch, groups, channels, h, w], W [groups, filters, channels, kh, kw], (bias), (window_sums [batch,
    groups, h, w], w_zero), factor, shift, zero_point, Y."""
    builder = ConvStages(shape)
    patch = builder.patch()
    w = builder.array(
        "W", "constant", (shape.groups, shape.filters, shape.channels, *shape.kernel), "gfcyx", shape.w_dtype
    )
    reduced = [
        te.reduce_axis((0, n), a) for n, a in ((shape.channels, "c"), (shape.kernel[0], "y"), (shape.kernel[1], "x"))
    ]

    def sums(b: Any, g: Any, f: Any, i: Any, j: Any) -> Any:
        c, y, x = reduced
        return te.sum(patch[b, g, i, j, c, y, x].astype("int32") * w[g, f, c, y, x].astype("int32"), axis=reduced)

    builder.stage("acc", (shape.batch, shape.groups, shape.filters, *shape.out), "bgfij", sums)
    builder.finish()
    return builder.kernel()


class ConvStages:
    """Collects the stages of a convolution; int8 here, fixed point in ``wide_convolution``."""

    def __init__(self, shape: ConvShape) -> None:
        self.shape = shape
        self.tensors: dict[str, Any] = {}
        self.axes: dict[str, tuple[str, ...]] = {}
        self.params: list[Param] = []
        self.stages: list[str] = []

    def array(self, name: str, role: str, shape: tuple[int, ...], axes: str, dtype: str) -> Any:
        self.tensors[name], self.axes[name] = te.placeholder(shape, dtype, name=name), tuple(axes)
        self.params.append(Param(name, role, shape, dtype))
        return self.tensors[name]

    def stage(self, name: str, shape: tuple[int, ...], axes: str, body: Any) -> Any:
        self.tensors[name], self.axes[name] = te.compute(shape, body, name=name), tuple(axes)
        self.stages.append(name)
        return self.tensors[name]

    def patch(self) -> Any:
        """Input values that each output needs, gathered from the (padded) input."""
        s = self.shape
        x = self.array("X", "input", (s.batch, s.groups, s.channels, s.height, s.width), "bgcHW", s.x_dtype)
        source = self.pad(x) if any(s.pads) else x
        (sy, sx), (dy, dx) = s.strides, s.dilations
        extents = (s.batch, s.groups, *s.out, s.channels, *s.kernel)
        body = lambda b, g, i, j, c, y, k: source[b, g, c, i * sy + y * dy, j * sx + k * dx]  # noqa: E731
        return self.stage("patch", extents, "bgijcyx", body)

    def pad(self, x: Any) -> Any:
        s = self.shape
        top, left = s.pads[:2]
        value = tir.const(s.pad_value, s.x_dtype)

        def body(b: Any, g: Any, c: Any, i: Any, j: Any) -> Any:
            inside = tir.all(i >= top, i < top + s.height, j >= left, j < left + s.width)
            return tir.if_then_else(inside, x[b, g, c, i - top, j - left], value)

        return self.stage("padded", (s.batch, s.groups, s.channels, *s.padded), "bgcHW", body)

    def finish(self) -> None:
        """Bias, terms of zero points and requantisation; one factor and shift, or one per filter."""
        s = self.shape
        total = self.total()
        outputs, axes = tuple(int(extent) for extent in total.shape), "".join(self.axes["acc"])
        if s.integer:
            self.stage("Y", outputs, axes, lambda *at: total[at])
            self.params.append(Param("Y", "output", outputs, s.dtype))
            return
        factor, shift, added = (
            self.scale(name) for name in ("factor", "shift", "addend" if s.addend else "zero_point")
        )
        pick = (lambda t, g, f: t[g, f]) if s.per_channel else (lambda t, g, f: t)

        def body(b: Any, g: Any, f: Any, i: Any, j: Any) -> Any:
            scaled = (pick(factor, g, f), pick(shift, g, f))
            last = added[g, f] if s.addend else added
            return requantise(total[b, g, f, i, j], *scaled, last, s.rounding, s.dtype)

        self.stage("Y", outputs, axes, body)
        self.params.append(Param("Y", "output", outputs, s.dtype))

    def total(self) -> Any:
        """What is added to the sums: one addition of int32, or with the terms of zero points in 64 bits."""
        s, acc = self.shape, self.tensors["acc"]
        outputs, axes = tuple(int(extent) for extent in acc.shape), "".join(self.axes["acc"])
        bias = self.array("bias", "constant", (s.groups, s.filters), "gf", "int32") if s.bias else None
        if not s.window_terms:
            add = lambda b, g, f, i, j: acc[b, g, f, i, j] + bias[g, f]  # noqa: E731
            return acc if bias is None else self.stage("total", outputs, axes, add)
        windows = self.array("window_sums", "input", (s.batch, s.groups, *s.out), "bgij", "int32")
        zero = self.array("w_zero", "constant", (s.groups, s.filters), "gf", "int32")

        def body(b: Any, g: Any, f: Any, i: Any, j: Any) -> Any:
            found = acc[b, g, f, i, j].astype("int64")
            found = found if bias is None else found + bias[g, f].astype("int64")
            term = windows[b, g, i, j].astype("int64") * zero[g, f].astype("int64")
            return (found - term).astype("int32")

        return self.stage("total", outputs, axes, body)

    def scale(self, name: str) -> Any:
        if name == "addend" or (self.shape.per_channel and name != "zero_point"):
            return self.array(name, "constant", (self.shape.groups, self.shape.filters), "gf", "int32")
        self.tensors[name] = te.var(name, "int64")
        self.params.append(Param(name, "scalar"))
        return self.tensors[name]

    def kernel(self) -> Kernel:
        s = self.shape
        tiling = depthwise_tiling if s.depthwise else conv_tiling
        return Kernel(
            "depthwise" if s.depthwise else "convolution",
            ("conv", s),
            tuple(self.params),
            self.tensors,
            self.axes,
            tuple(self.stages),
            lambda machine, budget: tiling(s, machine, budget),
            reduced={"acc": ("c", "y", "x")},
            padded=frozenset({"padded"} & set(self.stages)),
            broadcast=lambda _: frozenset() if s.depthwise else frozenset({"W"}),
            gathers=frozenset({"patch"}),
            dots=frozenset({"acc"}),
            observed=(self.stages[-2],) if s.observed else (),
            macs=s.macs,
        )


@lru_cache(maxsize=512)
def conv_tiling(s: ConvShape, machine: Machine, budget: int) -> Tiling:
    """Pixels over the rows; over the columns filters, or more pixels where that brings the patches in faster."""
    choices = [tiling for make in (_filters_over_columns, _pixels_over_columns) for tiling in make(s, machine, budget)]
    return min(choices, key=lambda tiling: conv_cycles(s, tiling, machine))


def _filters_over_columns(s: ConvShape, machine: Machine, budget: int) -> Iterator[Tiling]:
    """Channels go round the ring; tiles within the LRM."""
    (oh, ow), taps = s.out, s.kernel[0] * s.kernel[1]
    row_j = divisor(ow, machine.rows)
    row_i = divisor(oh, machine.rows // row_j)
    col = divisor(s.filters, machine.cols)
    ring = divisor(gcd(col, s.channels), col)
    room = lrm_room(machine, budget)
    depth = _depth(s.channels // ring, taps, room // 2)
    i, j, f = _outputs(s, (oh // row_i, ow // row_j, s.filters // col), depth * taps, room)
    yield {
        "b": Cut(step=s.batch),
        "g": Cut(step=s.groups),
        "f": Cut(s.filters // (col * f), col=col, local=f),
        "i": Cut(oh // (row_i * i), row_i, local=i),
        "j": Cut(ow // (row_j * j), row_j, local=j),
        "c": Cut(s.channels // (ring * depth), ring=ring, local=depth),
        "y": Cut(local=s.kernel[0]),
        "x": Cut(local=s.kernel[1]),
    }


def _pixels_over_columns(s: ConvShape, machine: Machine, budget: int) -> Iterator[Tiling]:
    """Each PE has its own pixels and all their channels; all PEs read the same weights from the bus."""
    (oh, ow), taps, room = s.out, s.kernel[0] * s.kernel[1], lrm_room(machine, budget)
    row, col = divisor(oh, machine.rows), divisor(ow, machine.cols)
    depth = _depth(s.channels, taps, room // 2)
    i, j, f = _outputs(s, (oh // row, ow // col, s.filters), depth * taps, room)
    yield {
        "b": Cut(step=s.batch),
        "g": Cut(step=s.groups),
        "f": Cut(s.filters // f, local=f),
        "i": Cut(oh // (row * i), row, local=i),
        "j": Cut(ow // (col * j), col=col, local=j),
        "c": Cut(s.channels // depth, local=depth),
        "y": Cut(local=s.kernel[0]),
        "x": Cut(local=s.kernel[1]),
    }


def lrm_room(machine: Machine, budget: int) -> int:
    return machine.lrm_bytes * min(budget, 56) // 64


def _depth(channels: int, taps: int, room: int) -> int:
    """Most channels of a patch at a time."""
    return max((d for d in _divisors(channels) if d * taps <= room), default=1)


def _outputs(s: ConvShape, extents: tuple[int, int, int], patch: int, room: int) -> tuple[int, int, int]:
    """Most outputs (rows, columns, filters) of a PE at a time."""
    fitting = [
        (i, j, f)
        for i, j, f in product(*map(_divisors, extents))
        if i * j * patch + i * j * f * s.bytes_per_output + f * s.bytes_per_filter + 4 * i * j * s.window_terms
        <= room - 64
        and i * j * f <= 256
    ]
    return max(fitting, key=lambda each: (each[0] * each[1] * each[2], each[1]), default=(1, 1, 1))


def conv_cycles(s: ConvShape, tiling: Tiling, machine: Machine) -> int:
    """Estimate for one group and image: patches in, products or their weights over the bus, the ring, results out."""
    i, j, f, c = (tiling[axis] for axis in "ijfc")
    rows = i.row * j.row
    tiles, pixels, filters = i.step * j.step * f.step, i.local * j.local, f.local
    taps = s.kernel[0] * s.kernel[1] * c.local
    words = taps // PORT_WORD if s.kernel[1] % PORT_WORD == 0 else taps
    load = pixels * words * rows * c.step
    bus = filters * -(-taps // PORT_WORD) * c.ring * c.step
    mac = -(-pixels * filters * taps // machine.macs_per_pe) * c.ring * c.step
    move = pixels * -(-taps // PORT_WORD) * c.ring * c.step if c.ring > 1 else 0
    return tiles * (load + max(bus, mac) + move + pixels * filters * rows)


@lru_cache(maxsize=512)
def depthwise_tiling(s: ConvShape, machine: Machine, budget: int) -> Tiling:
    """Channels over the columns, pixels over the rows, all taps of a pixel in its PE."""
    room = machine.lrm_bytes * min(budget, 56) // 64
    (oh, ow), taps = s.out, s.kernel[0] * s.kernel[1]
    col = divisor(s.groups, machine.cols)
    row_j = divisor(ow, machine.rows)
    row_i = divisor(oh, machine.rows // row_j)
    each = taps + s.bytes_per_output + 4 * s.window_terms
    fits = max(1, (room - 64 - taps) // each)
    j = divisor(ow // row_j, fits)
    i = divisor(oh // row_i, fits // j)
    return {
        "b": Cut(step=s.batch),
        "g": Cut(s.groups // col, col=col),
        "i": Cut(oh // (row_i * i), row_i, local=i),
        "j": Cut(ow // (row_j * j), row_j, local=j),
        "c": Cut(),
        "f": Cut(),
        "y": Cut(local=s.kernel[0]),
        "x": Cut(local=s.kernel[1]),
    }


def _divisors(extent: int) -> list[int]:
    return [d for d in range(1, extent + 1) if extent % d == 0]
