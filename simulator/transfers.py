"""Instructions that move bytes between memories: Dma, Load, Store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from epu.simulator.instruction import (
    Access,
    Cost,
    Instruction,
    Limits,
    ceil_div,
    digit_pairs,
    grid_limits,
    loop_limits,
    lrm_access,
    lrm_limits,
    ocm_access,
    ocm_limits,
    same_dtype,
    tag_limits,
)
from epu.simulator.layout import pe_strides
from epu.simulator.machine import Machine
from epu.simulator.memory import Memories, copy_views
from epu.simulator.operands import SIZES, Grid, Lrm, Ocm


@dataclass(frozen=True)
class Dma(Instruction):
    """Strided copy external -> OCM ("in") or OCM -> external ("out"); asynchronous, ended by a Wait on its tag.

    One burst on the read or the write channel: latency plus the bytes at the channel's bandwidth.
    """

    direction: str
    ext_addr: int
    ocm_addr: int
    shape: tuple[int, ...]
    ext_strides: tuple[int, ...]
    ocm_strides: tuple[int, ...]
    elem_bytes: int
    tag: int
    opcode: ClassVar[int] = 1

    @property
    def channel(self) -> str:
        """The external read or write channel."""
        return self.direction

    @property
    def bytes(self) -> int:
        """Bytes moved."""
        return prod(self.shape) * self.elem_bytes

    def limits(self, machine: Machine) -> Limits:
        """Direction, element size, ranks, tag."""
        if self.direction not in ("in", "out"):
            yield "direction", f"must be 'in' or 'out', found {self.direction!r}"
        if self.elem_bytes < 1:
            yield "elem_bytes", f"must be at least 1, found {self.elem_bytes}"
        for name, strides in (("ext_strides", self.ext_strides), ("ocm_strides", self.ocm_strides)):
            if len(strides) != len(self.shape):
                yield name, f"must have {len(self.shape)} strides, one per axis of shape, found {len(strides)}"
        yield from loop_limits(self.shape, "shape")
        yield from tag_limits(self.tag, 1)

    def accesses(self) -> tuple[Access, ...]:
        """One side read, the other written."""
        inward = self.direction == "in"
        size = self.elem_bytes
        ext = Access("ext_addr", not inward, "ext", self.ext_addr, self.shape, self.ext_strides, size)
        ocm = Access("ocm_addr", inward, "ocm", self.ocm_addr, self.shape, self.ocm_strides, size)
        return (ext, ocm) if inward else (ocm, ext)

    def plan(self, memories: Memories) -> Callable[[], None]:
        """One strided copy."""
        ext, ocm = ("ext", self.ext_addr, self.ext_strides), ("ocm", self.ocm_addr, self.ocm_strides)
        dst, src = (ocm, ext) if self.direction == "in" else (ext, ocm)
        to, source = copy_views(memories, self.shape, dst, src, self.elem_bytes)
        return lambda: np.copyto(to, source)

    def cycles(self, machine: Machine) -> Cost:
        """One external burst."""
        return Cost(data_external=machine.ext_cycles(self.direction, self.bytes))


@dataclass(frozen=True)
class Load(Instruction):
    """Copy OCM -> LRM, same dtype. With all ``src.row_strides`` zero, one bus transfer serves all rows.

    Tag 0 is synchronous; 1..255 runs beside what follows, until a Wait on the tag.
    """

    grid: Grid
    loops: tuple[int, ...]
    dst: Lrm
    src: Ocm
    tag: int = 0
    opcode: ClassVar[int] = 3

    @property
    def channel(self) -> str:
        """The OCM port where it has a tag."""
        return "port" if self.tag else ""

    def limits(self, machine: Machine) -> Limits:
        """Grid, ranks, equal dtypes, tag."""
        yield from _limits(self.grid, self.loops, self.dst, self.src, self.tag, machine)
        yield from same_dtype(self.dst, self.src)

    def accesses(self) -> tuple[Access, ...]:
        """OCM read, LRM written."""
        read = ocm_access("src", False, self.grid, self.loops, self.src)
        return read, lrm_access("dst", True, self.grid, self.loops, self.dst)

    def plan(self, memories: Memories) -> Callable[[], None]:
        """One strided copy."""
        lrm, ocm = _sides(memories, self.grid, self.dst, self.src)
        shape = (*self.grid.rows, *self.grid.cols, *self.loops)
        to, source = copy_views(memories, shape, lrm, ocm, SIZES[self.dst.dtype])
        return lambda: np.copyto(to, source)

    def cycles(self, machine: Machine) -> Cost:
        """Bus transfers per PE, times the rows that are served one after the other."""
        rows = self.grid.height if any(self.src.row_strides) else 1
        return Cost(data_ocm=rows * transfers(self.loops, self.src, machine))


@dataclass(frozen=True)
class Store(Instruction):
    """Copy LRM -> OCM, same dtype. Targets of different PEs and elements must not overlap. Tags as in Load."""

    grid: Grid
    loops: tuple[int, ...]
    dst: Ocm
    src: Lrm
    tag: int = 0
    opcode: ClassVar[int] = 4

    @property
    def channel(self) -> str:
        """The OCM port where it has a tag."""
        return "port" if self.tag else ""

    def limits(self, machine: Machine) -> Limits:
        """Grid, ranks, equal dtypes, tag."""
        yield from _limits(self.grid, self.loops, self.src, self.dst, self.tag, machine)
        yield from same_dtype(self.dst, self.src)

    def accesses(self) -> tuple[Access, ...]:
        """LRM read, OCM written."""
        read = lrm_access("src", False, self.grid, self.loops, self.src)
        return read, ocm_access("dst", True, self.grid, self.loops, self.dst)

    def plan(self, memories: Memories) -> Callable[[], None]:
        """One strided copy."""
        lrm, ocm = _sides(memories, self.grid, self.src, self.dst)
        shape = (*self.grid.rows, *self.grid.cols, *self.loops)
        to, source = copy_views(memories, shape, ocm, lrm, SIZES[self.dst.dtype])
        return lambda: np.copyto(to, source)

    def cycles(self, machine: Machine) -> Cost:
        """Bus transfers per PE, rows one after the other."""
        return Cost(data_ocm=self.grid.height * transfers(self.loops, self.dst, machine))


def _limits(grid: Grid, loops: tuple[int, ...], lrm: object, ocm: object, tag: int, machine: Machine) -> Limits:
    lrm_name, ocm_name = "LRM side", "OCM side"
    yield from grid_limits(grid, machine)
    yield from loop_limits(loops)
    yield from lrm_limits(lrm_name, lrm, len(loops))
    yield from ocm_limits(ocm_name, ocm, grid, len(loops))
    yield from tag_limits(tag, 0)


Side = tuple[str, int, list[int]]


def _sides(memories: Memories, grid: Grid, lrm: Lrm, ocm: Ocm) -> tuple[Side, Side]:
    """(space, address, strides) of both sides over (row digits, column digits, loops)."""
    array = [*pe_strides(grid, memories.machine.cols, memories.pitch), *lrm.strides]
    pairs = digit_pairs(grid.rows, ocm.row_strides) + digit_pairs(grid.cols, ocm.col_strides)
    return ("lrm", lrm.addr, array), ("ocm", ocm.addr, [*(stride for _, stride in pairs), *ocm.strides])


def transfers(loops: tuple[int, ...], ocm: Ocm, machine: Machine) -> int:
    """Bus words of one PE: whole words where elements are packed, else one word per element."""
    size = SIZES[ocm.dtype]
    count = prod(loops)
    if size >= machine.port_bytes or _packed(loops, ocm.strides, size, machine.port_bytes):
        return ceil_div(count * size, machine.port_bytes)
    return count


def _packed(loops: tuple[int, ...], strides: tuple[int, ...], size: int, word: int) -> bool:
    """Whether some loop walks contiguous elements that fill whole words."""
    return any(stride == size and count * size % word == 0 for count, stride in zip(loops, strides))
