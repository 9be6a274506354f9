"""What a stretch of code does, apart from how long it takes: products, element operations, bytes moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatch
from math import prod

from epu.simulator.elementwise import Alu, Lut
from epu.simulator.instruction import Instruction
from epu.simulator.matrix import Mac, MacLocal
from epu.simulator.operands import SIZES, Grid
from epu.simulator.reductions import AllReduce, Reduce
from epu.simulator.transfers import Dma, Load, Store


@dataclass(frozen=True)
class Work:
    """``macs``: int8 multiply-accumulates executed. ``operations``: elements that the ALUs handled, one for each instruction
    and element. ``port_bytes``: payload between OCM and array, a broadcast counted once. ``ext_bytes``: payload of Dma."""

    macs: int = 0
    operations: int = 0
    port_bytes: int = 0
    ext_bytes: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.macs + other.macs,
            self.operations + other.operations,
            self.port_bytes + other.port_bytes,
            self.ext_bytes + other.ext_bytes,
        )


def work_of(code: Iterable[Instruction]) -> Work:
    """The work of all instructions together."""
    return sum(map(_work, code), Work())


def _pes(grid: Grid) -> int:
    return grid.height * grid.width


@singledispatch
def _work(instruction: Instruction) -> Work:
    return Work()


@_work.register(Alu)
@_work.register(Lut)
@_work.register(Reduce)
@_work.register(AllReduce)
def _operations(instruction: Alu | Lut | Reduce | AllReduce) -> Work:
    return Work(operations=_pes(instruction.grid) * prod(instruction.loops))


@_work.register
def _mac(instruction: Mac) -> Work:
    once = instruction.grid.width * instruction.ring * instruction.k_local * prod(instruction.n_loops)
    return Work(macs=once * instruction.grid.height * prod(instruction.m_loops), port_bytes=once)


@_work.register
def _mac_local(instruction: MacLocal) -> Work:
    return Work(macs=_pes(instruction.grid) * prod(instruction.loops))


@_work.register
def _load(instruction: Load) -> Work:
    rows = instruction.grid.height if any(instruction.src.row_strides) else 1
    count = rows * instruction.grid.width * prod(instruction.loops)
    return Work(port_bytes=count * SIZES[instruction.src.dtype])


@_work.register
def _store(instruction: Store) -> Work:
    return Work(port_bytes=_pes(instruction.grid) * prod(instruction.loops) * SIZES[instruction.dst.dtype])


@_work.register
def _dma(instruction: Dma) -> Work:
    return Work(ext_bytes=instruction.bytes)
