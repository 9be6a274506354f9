"""The memories of the step engine: bytes, one LRM per PE, values read and written one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from epu.simulator.machine import Machine
from epu.simulator.operands import Grid, Imm, Lrm, Ocm
from epu.simulator.program import Buffer
from epu.simulator.step_arithmetic import to_dtype

SIZE = {"i8": 1, "u8": 1, "i32": 4, "i64": 8}
HOST_DTYPE = {name: np.dtype(code) for name, code in (("i8", "i1"), ("u8", "u1"), ("i32", "<i4"), ("i64", "<i8"))}


def indices(loops: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All loop indices, last loop fastest."""
    return product(*(range(count) for count in loops))


def offset(index: Sequence[int], strides: Sequence[int]) -> int:
    """Address offset of a loop index; no strides at all mean 0."""
    return sum(i * stride for i, stride in zip(index, strides))


def digits(number: int, counts: Sequence[int]) -> list[int]:
    """Mixed-radix digits, last fastest."""
    found: list[int] = []
    for count in reversed(counts):
        number, digit = divmod(number, count)
        found.insert(0, digit)
    return found


class StepMemories:
    """LRM per PE, OCM and external memory."""

    def __init__(self, machine: Machine, ext_bytes: int) -> None:
        self.machine = machine
        self.lrm = [bytearray(b"\xa5" * machine.lrm_bytes) for _ in range(machine.pes)]
        self.memory = {"ocm": bytearray(b"\xa5" * machine.ocm_bytes), "ext": bytearray(ext_bytes)}

    def place(self, addr: int, data: Any) -> None:
        """Put bytes into external memory."""
        self.memory["ext"][addr : addr + data.size] = data.tobytes()

    def read(self, buffer: Buffer) -> Any:
        """Copy of a buffer."""
        dtype = HOST_DTYPE[buffer.dtype]
        count = int(np.prod(buffer.shape, dtype=np.int64))
        return np.frombuffer(self.memory[buffer.space], dtype, count, buffer.addr).reshape(buffer.shape).copy()

    def write(self, buffer: Buffer, values: Any) -> None:
        """Overwrite a buffer."""
        dtype = HOST_DTYPE[buffer.dtype]
        data = np.ascontiguousarray(values, dtype).tobytes()
        self.memory[buffer.space][buffer.addr : buffer.addr + len(data)] = data

    def read_lrm(self, grid: Grid, loops: Sequence[int], operand: Lrm) -> Any:
        """Copy of an LRM operand, shape (row digits, column digits, loops)."""
        values = [self.get(pe, operand, index) for pe in self.active(grid) for index in indices(loops)]
        dtype = HOST_DTYPE[operand.dtype]
        return np.array(values, np.int64).astype(dtype).reshape(*grid.rows, *grid.cols, *loops)

    def active(self, grid: Grid) -> list[int]:
        """Numbers of the active PEs, row by row."""
        return [row * self.machine.cols + col for row in range(grid.height) for col in range(grid.width)]

    def get(self, pe: int, operand: Any, index: Sequence[int]) -> int:
        """One value of an LRM or Imm operand."""
        if isinstance(operand, Imm):
            return operand.value
        addr = operand.addr + offset(index, operand.strides)
        return int.from_bytes(self.lrm[pe][addr : addr + SIZE[operand.dtype]], "little", signed=operand.dtype != "u8")

    def put(self, pe: int, operand: Lrm, index: Sequence[int], value: int, saturate: bool = False) -> None:
        """Write one value: low bits, or clipped."""
        addr, size = operand.addr + offset(index, operand.strides), SIZE[operand.dtype]
        stored = to_dtype(value, operand.dtype, saturate)
        self.lrm[pe][addr : addr + size] = stored.to_bytes(size, "little", signed=operand.dtype != "u8")

    def ocm_addr(self, operand: Ocm, grid: Grid, row: int, col: int, index: Sequence[int]) -> int:
        """Address of PE (row, col) at a loop index."""
        across = offset(digits(row, grid.rows), operand.row_strides) + offset(
            digits(col, grid.cols), operand.col_strides
        )
        return operand.addr + across + offset(index, operand.strides)
