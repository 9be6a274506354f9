"""The three memories and checked views of operands in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.simulator.errors import UserError
from epu.simulator.fixed_point import NUMPY_DTYPE
from epu.simulator.layout import merge, pe_strides, sort_loops
from epu.simulator.machine import Machine
from epu.simulator.operands import Grid, Lrm
from epu.simulator.program import Buffer

Array = NDArray[Any]
POISON = 0xA5  # what LRM and OCM hold before they are written; external memory holds 0
LRM_PAD = 64  # bytes between the LRMs of neighbouring PEs in the host's memory: spreads them over its cache sets
SCRATCH_BYTES = 1 << 17  # one host scratch buffer; a few of them fit the host's L2


class Memories:
    """LRM of every PE, OCM and external memory as flat byte arrays."""

    def __init__(self, machine: Machine, ext_bytes: int) -> None:
        self.machine = machine
        self.pitch = machine.lrm_bytes + LRM_PAD
        self.lrm = np.full(machine.pes * self.pitch, POISON, np.uint8)
        self.ocm = np.full(machine.ocm_bytes, POISON, np.uint8)
        self.ext = np.zeros(ext_bytes, np.uint8)  # may be large: the host maps zeros when they are touched
        self._scratch: list[Array] = []

    def poison(self) -> None:
        """Forget everything."""
        self.lrm.fill(POISON)
        self.ocm.fill(POISON)
        self.ext.fill(0)

    def view(self, space: str, addr: int, dtype: Any, shape: Sequence[int], strides: Sequence[int]) -> Array:
        """Strided view; raises ValueError outside the memory."""
        memory = getattr(self, space)
        return np.ndarray(tuple(shape), dtype, memory, addr, tuple(strides))

    def lrm_view(self, grid: Grid, loops: Sequence[int], operand: Lrm) -> Array:
        """View of shape (row digits, column digits, loops)."""
        strides = [*pe_strides(grid, self.machine.cols, self.pitch), *operand.strides]
        shape = [*grid.rows, *grid.cols, *loops]
        return self.view("lrm", operand.addr, NUMPY_DTYPE[operand.dtype], shape, strides)

    def columns_view(self, grid: Grid, loops: Sequence[int], operand: Lrm) -> Array:
        """View of shape (rows, columns, loops)."""
        return self.lrm_view(Grid((grid.height,), (grid.width,)), loops, operand)

    def buffer_view(self, buffer: Buffer) -> Array:
        """View of a whole buffer."""
        dtype = NUMPY_DTYPE[buffer.dtype]
        strides = np.empty(buffer.shape, np.uint8).strides if buffer.shape else ()
        return self.view(buffer.space, buffer.addr, dtype, buffer.shape, [s * dtype.itemsize for s in strides])

    def scratch(self, slot: int, dtype: Any, shape: Sequence[int]) -> Array:
        """Contiguous work area; each slot has its own bytes, shared by all instructions."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        while len(self._scratch) <= slot:
            self._scratch.append(np.empty(SCRATCH_BYTES, np.uint8))
        if self._scratch[slot].size < size:
            self._scratch[slot] = np.empty(size, np.uint8)
        return self._scratch[slot][:size].view(dtype).reshape(tuple(shape))


def copy_views(
    memories: Memories,
    shape: Sequence[int],
    dst: tuple[str, int, Sequence[int]],
    src: tuple[str, int, Sequence[int]],
    size: int,
) -> tuple[Array, Array]:
    """Views (dst, src) for a raw copy of ``size``-byte elements, in the widest words the layout allows.

    ``dst`` and ``src`` are (space, address, strides).
    """
    inner = [*shape, size]
    loops, steps = sort_loops(inner, [[*dst[2], 1], [*src[2], 1]])
    loops, steps = merge(loops, steps)
    word = 1
    if loops and steps[0][-1] == steps[1][-1] == 1:
        rest = [dst[1], src[1], loops[-1], *steps[0][:-1], *steps[1][:-1]]
        word = next(w for w in (8, 4, 2, 1) if all(each % w == 0 for each in rest))
        loops[-1] //= word
        steps[0][-1], steps[1][-1] = word, word
    dtype = np.dtype(f"u{word}")
    to = memories.view(dst[0], dst[1], dtype, loops, steps[0])
    source = memories.view(src[0], src[1], dtype, loops, steps[1])
    return to, source


def check_raw(buffer: Buffer, array: Any) -> Array:
    """``array`` as raw integers of the buffer's shape and dtype, else a UserError."""
    values = np.asarray(array)
    if values.shape != buffer.shape:
        raise UserError(f"tensor '{buffer.name}': shape must be {buffer.shape}, found {values.shape}. Reshape it.")
    if values.dtype.kind not in "iu" or not np.can_cast(values.dtype, NUMPY_DTYPE[buffer.dtype]):
        limit = f"raw integers that fit {buffer.dtype}"
        raise UserError(f"tensor '{buffer.name}': must be {limit}, found {values.dtype}. Encode it with encode_real.")
    return values
