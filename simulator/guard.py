"""Strict mode: reads of bytes never written, and touches of areas that a transfer in flight still uses."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.simulator.control import Halt, Wait
from epu.simulator.instruction import Access, Instruction
from epu.simulator.layout import merge, overlap
from epu.simulator.machine import Machine
from epu.simulator.operands import SIZES
from epu.simulator.program import Buffer
from epu.simulator.verify import fault


class Guard:
    """Shadow of all memories. Bytes only ever become written, so what passed once is not looked at again."""

    def __init__(self, machine: Machine, ext_bytes: int) -> None:
        self._lrm_bytes = machine.lrm_bytes
        # Columns written, per row and byte: grids start at PE (0, 0), so what is written is a staircase of rows.
        self._columns = np.zeros((machine.rows, machine.lrm_bytes), np.uint16)
        self._flat = {"ocm": np.zeros(machine.ocm_bytes, bool), "ext": np.zeros(ext_bytes, bool)}
        self._passed: set[Access] = set()
        self._in_flight: list[tuple[int, Access]] = []

    def mark(self, space: str, addr: int, count: int) -> None:
        """Bytes written from outside the program."""
        self._flat[space][addr : addr + count] = True

    def mark_buffer(self, buffer: Buffer) -> None:
        """A whole buffer written from outside the program."""
        self.mark(buffer.space, buffer.addr, prod(buffer.shape) * SIZES[buffer.dtype])

    def pass_instruction(self, instruction: Instruction, accesses: tuple[Access, ...]) -> None:
        """MachineFault where the instruction must not run now; else note what it writes."""
        if isinstance(instruction, Wait):
            self._in_flight = [each for each in self._in_flight if each[0] != instruction.tag]
        if isinstance(instruction, Halt):
            self._in_flight = []
        for access in accesses:
            self._check_flight(access)
            if access not in self._passed:
                self._first_time(access)
        if instruction.channel:
            tag: int = instruction.tag  # type: ignore[attr-defined]
            self._in_flight += [(tag, access) for access in accesses]

    def _check_flight(self, access: Access) -> None:
        for tag, other in self._in_flight:
            clash = access.space == other.space and (access.writes or other.writes)
            if clash and overlap(access.span, other.span):
                deed = "written" if other.writes else "read"
                found = f"{access.space.upper()} bytes {access.bounds}"
                raise fault(
                    access.operand, f"an area {deed} by the transfer of tag {tag} in flight: {found}; Wait first"
                )

    def _first_time(self, access: Access) -> None:
        if access.writes:
            self._note_written(access)
        elif not self._is_written(access):
            low, high = access.bounds
            limit = f"must read written bytes only, found unwritten ones in {access.space.upper()} {low} to {high}"
            raise fault(access.operand, f"{limit}; load or set them first")
        self._passed.add(access)

    def _note_written(self, access: Access) -> None:
        view = self._view(access, 0, access.height)
        if access.space == "lrm":
            np.maximum(view, np.uint16(access.width), out=view)
        else:
            view[...] = True

    def _is_written(self, access: Access) -> bool:
        if access.space == "lrm":
            return bool(self._view(access, access.height - 1, 1).min() >= access.width)
        low, high = access.bounds
        return bool(self._flat[access.space][low:high].all() or self._view(access, 0, 0).all())

    def _view(self, access: Access, first_row: int, rows: int) -> NDArray[Any]:
        """Shadow of the access, for LRM in ``rows`` rows from ``first_row``."""
        shape, (strides,) = merge((*access.shape, access.size), [(*access.strides, 1)])
        if access.space != "lrm":
            return np.ndarray(tuple(shape), bool, self._flat[access.space], access.addr, tuple(strides))
        offset = 2 * (first_row * self._lrm_bytes + access.addr)
        steps = (2 * self._lrm_bytes, *(2 * stride for stride in strides))
        return np.ndarray((rows, *shape), np.uint16, self._columns, offset, steps)
