"""What a stretch of code does, apart from how long it takes: products, element operations, bytes moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

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


Counts = tuple[int, int, int, int]  # in the order of Work's fields


def work_of(code: Iterable[Instruction]) -> Work:
    """The work of all instructions together."""
    macs = operations = port_bytes = ext_bytes = 0
    for instruction in code:
        count = COUNTS.get(type(instruction))
        if count is not None:
            found = count(instruction)
            macs, operations = macs + found[0], operations + found[1]
            port_bytes, ext_bytes = port_bytes + found[2], ext_bytes + found[3]
    return Work(macs, operations, port_bytes, ext_bytes)


def _pes(grid: Grid) -> int:
    return grid.height * grid.width


def _operations(instruction: Alu | Lut | Reduce | AllReduce) -> Counts:
    return 0, _pes(instruction.grid) * prod(instruction.loops), 0, 0


def _mac(instruction: Mac) -> Counts:
    once = instruction.grid.width * instruction.ring * instruction.k_local * prod(instruction.n_loops)
    return once * instruction.grid.height * prod(instruction.m_loops), 0, once, 0


def _mac_local(instruction: MacLocal) -> Counts:
    return _pes(instruction.grid) * prod(instruction.loops), 0, 0, 0


def _load(instruction: Load) -> Counts:
    rows = instruction.grid.height if any(instruction.src.row_strides) else 1
    count = rows * instruction.grid.width * prod(instruction.loops)
    return 0, 0, count * SIZES[instruction.src.dtype], 0


def _store(instruction: Store) -> Counts:
    return 0, 0, _pes(instruction.grid) * prod(instruction.loops) * SIZES[instruction.dst.dtype], 0


def _dma(instruction: Dma) -> Counts:
    return 0, 0, 0, instruction.bytes


COUNTS: dict[type[Instruction], Callable[[Any], Counts]] = {
    **dict.fromkeys((Alu, Lut, Reduce, AllReduce), _operations),
    Mac: _mac,
    MacLocal: _mac_local,
    Load: _load,
    Store: _store,
    Dma: _dma,
}  # Wait and Halt do no work
