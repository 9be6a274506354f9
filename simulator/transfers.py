"""Instructions that move bytes between memories: Dma, Load, Store."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from epu.simulator.instruction import Cost, Instruction, ceil_div
from epu.simulator.machine import Machine
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
    def bytes(self) -> int:
        """Bytes moved."""
        return prod(self.shape) * self.elem_bytes

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

    def cycles(self, machine: Machine) -> Cost:
        """Bus transfers per PE, times the rows that are served one after the other."""
        rows = self.grid.height if any(self.src.row_strides) else 1
        return Cost(data_ocm=rows * _transfers(self.loops, self.src, machine))


@dataclass(frozen=True)
class Store(Instruction):
    """Copy LRM -> OCM, same dtype. Targets of different PEs and elements must not overlap. Tags as in Load."""

    grid: Grid
    loops: tuple[int, ...]
    dst: Ocm
    src: Lrm
    tag: int = 0
    opcode: ClassVar[int] = 4

    def cycles(self, machine: Machine) -> Cost:
        """Bus transfers per PE, rows one after the other."""
        return Cost(data_ocm=self.grid.height * _transfers(self.loops, self.dst, machine))


def _transfers(loops: tuple[int, ...], ocm: Ocm, machine: Machine) -> int:
    """Bus words of one PE: whole words where elements are packed, else one word per element."""
    size = SIZES[ocm.dtype]
    count = prod(loops)
    if size >= machine.port_bytes or packed(loops, ocm.strides, size, machine.port_bytes):
        return ceil_div(count * size, machine.port_bytes)
    return count


def packed(loops: tuple[int, ...], strides: tuple[int, ...], size: int, word: int) -> bool:
    """Whether some loop walks contiguous elements that fill whole words."""
    return any(stride == size and count * size % word == 0 for count, stride in zip(loops, strides))
