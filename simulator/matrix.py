"""Matrix products of int8: Mac (systolic ring with broadcast weights) and MacLocal (both operands in LRM)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from epu.simulator.fixed_point import matmul_int8
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
    ocm_limits,
)
from epu.simulator.machine import Machine
from epu.simulator.memory import Array, Memories
from epu.simulator.operands import Grid, Lrm, Ocm

BYTES = ("i8", "u8")
MAGNITUDE = {"i8": 128, "u8": 255}


@dataclass(frozen=True)
class Mac(Instruction):
    """``acc[m, n] += sum over k of A[m, k] * B[k, n]`` on the array, modulo 2^32.

    PE (r, c) owns the outputs (its ``m_loops`` of row r, its ``n_loops`` of column c). Its LRM holds chunk ``c % ring`` of
    A: ``k_local`` values for each m (``a.strides``: one per m loop, then k). B comes over the broadcast bus
    (``b.strides``: one per n loop, then ring, then k; ``b.col_strides`` per column digit; no row strides). A travels round
    the ring of ``ring`` neighbouring columns by neighbour moves and is home again at the end. ``ring`` divides the active
    columns; each aligned group of ``ring`` columns is a ring of its own with its own A.
    """

    grid: Grid
    m_loops: tuple[int, ...]
    n_loops: tuple[int, ...]
    ring: int
    k_local: int
    acc: Lrm
    a: Lrm
    b: Ocm
    tag: int = 0
    opcode: ClassVar[int] = 9

    def limits(self, machine: Machine) -> Limits:
        """Grid, ring, ranks, dtypes; no tag but 0."""
        yield from grid_limits(self.grid, machine)
        yield from loop_limits((*self.m_loops, *self.n_loops, self.k_local), "m_loops, n_loops, k_local")
        if self.ring < 1 or self.grid.width % self.ring:
            yield "ring", f"must divide the active columns ({self.grid.width}), found {self.ring}"
        yield from lrm_limits("acc", self.acc, len(self.m_loops) + len(self.n_loops), ("i32",))
        yield from lrm_limits("a", self.a, len(self.m_loops) + 1, BYTES)
        yield from ocm_limits("b", self.b, self.grid, len(self.n_loops) + 2, BYTES)
        if any(self.b.row_strides):
            yield "b", f"must have no row strides (one broadcast serves all rows), found {self.b.row_strides}"
        if self.tag:
            yield "tag", f"must be 0 (a Mac is synchronous), found {self.tag}"

    def accesses(self) -> tuple[Access, ...]:
        """a, b and acc read, acc written."""
        a = lrm_access("a", False, self.grid, (*self.m_loops, self.k_local), self.a)
        pairs = digit_pairs(self.grid.cols, self.b.col_strides)
        shape = (*(n for n, _ in pairs), *self.n_loops, self.ring, self.k_local)
        b = Access("b", False, "ocm", self.b.addr, shape, (*(s for _, s in pairs), *self.b.strides), 1)
        acc = lrm_access("acc", False, self.grid, (*self.m_loops, *self.n_loops), self.acc)
        return a, b, acc, acc._replace(writes=True)

    def plan(self, memories: Memories) -> Callable[[], None]:
        """One exact float32 matrix product per ring, or one in all where every PE has its own A and they share B."""
        rings = self.grid.width // self.ring
        if self.ring == 1 and rings > 1 and not any(self.b.col_strides):
            return self._plan_shared(memories)
        gather_a, gather_b = self._gather_a(memories, rings), self._gather_b(memories, rings)
        outputs = (prod(self.m_loops), prod(self.n_loops))
        shape = (self.grid.height, self.ring, *outputs)
        acc = memories.lrm_view(Grid((self.grid.height,), (rings, self.ring)), (*self.m_loops, *self.n_loops), self.acc)
        tile = memories.scratch(2, np.int32, shape)
        tile_by_row = tile.transpose(0, 2, 1, 3)
        bounds = (MAGNITUDE[self.a.dtype], MAGNITUDE[self.b.dtype])

        def run() -> None:
            left, right = gather_a(), gather_b()
            for ring in range(rings):
                product = matmul_int8(left[ring], right[ring], *bounds)
                np.copyto(tile_by_row, product.reshape(tile_by_row.shape))
                part = acc[:, ring]
                np.add(part, tile.reshape(part.shape), out=part)

        return run

    def _plan_shared(self, memories: Memories) -> Callable[[], None]:
        """All PEs' A below each other, times the one B."""
        height, width = self.grid.height, self.grid.width
        outputs = (prod(self.m_loops), prod(self.n_loops))
        one = replace(self, grid=Grid(self.grid.rows, (1,)), b=replace(self.b, col_strides=(0,)))
        gather_a, gather_b = self._gather_a(memories, width), one._gather_b(memories, 1)
        acc = memories.lrm_view(Grid((height,), (width,)), (*self.m_loops, *self.n_loops), self.acc)
        tile = memories.scratch(2, np.int32, (height, width, *outputs))
        bounds = (MAGNITUDE[self.a.dtype], MAGNITUDE[self.b.dtype])

        def run() -> None:
            left = gather_a()
            product = matmul_int8(left.reshape(-1, self.k_local), gather_b()[0], *bounds)
            np.copyto(tile.transpose(1, 0, 2, 3), product.reshape(width, height, *outputs))
            np.add(acc, tile.reshape(acc.shape), out=acc)

        return run

    def _gather_a(self, memories: Memories, rings: int) -> Callable[[], Array]:
        """A as float32 [rings, rows * m, ring * k]."""
        view = memories.lrm_view(Grid((self.grid.height,), (rings, self.ring)), (*self.m_loops, self.k_local), self.a)
        m_axes = tuple(range(3, 3 + len(self.m_loops)))
        source = view.transpose(1, 0, *m_axes, 2, view.ndim - 1)
        rows, depth = self.grid.height * prod(self.m_loops), self.ring * self.k_local
        flat = memories.scratch(0, np.float32, (rings, rows, depth))
        return _gather(flat.reshape(source.shape), source, flat)

    def _gather_b(self, memories: Memories, rings: int) -> Callable[[], Array]:
        """B as float32 [rings, ring * k, ring * n], laid out along whichever of k and n is contiguous in OCM."""
        pairs = digit_pairs(self.grid.cols, self.b.col_strides)
        shape = (*(n for n, _ in pairs), *self.n_loops, self.ring, self.k_local)
        strides = (*(s for _, s in pairs), *self.b.strides)
        view = memories.view("ocm", self.b.addr, "i1" if self.b.dtype == "i8" else "u1", shape, strides)
        depth, width = self.ring * self.k_local, self.ring * prod(self.n_loops)
        if self.b.strides[-1] == 1 or rings > 1:
            flat = memories.scratch(1, np.float32, (rings, width, depth))
            return _gather(flat.reshape(view.shape), view, flat.transpose(0, 2, 1))
        source = view.transpose(view.ndim - 2, view.ndim - 1, *range(view.ndim - 2))
        flat = memories.scratch(1, np.float32, (1, depth, width))
        return _gather(flat.reshape(source.shape), source, flat)

    def cycles(self, machine: Machine) -> Cost:
        """Per ring step: the longer of products and bus, then the neighbour moves."""
        mac = ceil_div(prod(self.m_loops) * prod(self.n_loops) * self.k_local, machine.macs_per_pe)
        bus = self.bus_words(machine.port_bytes)
        move = prod(self.m_loops) * ceil_div(self.k_local, machine.port_bytes) if self.ring > 1 else 0
        ring = self.ring
        return Cost(mac=ring * mac, data_array=ring * move, data_ocm=ring * bus, overlap=ring * min(mac, bus))

    def bus_words(self, word: int) -> int:
        """Bus words of one ring step and column: whole words where B is packed, else one word per value."""
        count = prod(self.n_loops) * self.k_local
        along_k = self.b.strides[-1] == 1 and self.k_local % word == 0
        along_n = bool(self.n_loops) and self.b.strides[-3] == 1 and self.n_loops[-1] % word == 0
        return ceil_div(count, word) if along_k or along_n or self._dense(word) else count

    def _dense(self, word: int) -> bool:
        """Whether the bytes of each step and column are one run from a word boundary."""
        starts = (self.b.addr, self.b.strides[-2], *self.b.col_strides)
        loops = sorted(zip((*self.b.strides[:-2], self.b.strides[-1]), (*self.n_loops, self.k_local)))
        extent = 1
        for stride, count in loops:
            if count > 1 and stride != extent:
                return False
            extent *= count
        return all(start % word == 0 for start in starts)


def _gather(to: Array, source: Array, result: Array) -> Callable[[], Array]:
    def gather() -> Array:
        np.copyto(to, source)
        return result

    return gather


@dataclass(frozen=True)
class MacLocal(Instruction):
    """``acc[e] += sum over t of a[e, t] * b[e, t]`` modulo 2^32, all in LRM; t are the last ``n_reduced`` loops."""

    grid: Grid
    loops: tuple[int, ...]
    n_reduced: int
    acc: Lrm
    a: Lrm
    b: Lrm
    opcode: ClassVar[int] = 10

    @property
    def leading(self) -> tuple[int, ...]:
        """The loops over outputs."""
        return self.loops[: len(self.loops) - self.n_reduced]

    def limits(self, machine: Machine) -> Limits:
        """Grid, ranks, dtypes."""
        yield from grid_limits(self.grid, machine)
        yield from loop_limits(self.loops)
        if not 1 <= self.n_reduced <= len(self.loops):
            yield "n_reduced", f"must be 1 to the number of loops ({len(self.loops)}), found {self.n_reduced}"
        yield from lrm_limits("acc", self.acc, len(self.leading), ("i32",))
        yield from lrm_limits("a", self.a, len(self.loops), BYTES)
        yield from lrm_limits("b", self.b, len(self.loops), BYTES)

    def accesses(self) -> tuple[Access, ...]:
        """a, b and acc read, acc written."""
        a = lrm_access("a", False, self.grid, self.loops, self.a)
        b = lrm_access("b", False, self.grid, self.loops, self.b)
        acc = lrm_access("acc", False, self.grid, self.leading, self.acc)
        return a, b, acc, acc._replace(writes=True)

    def plan(self, memories: Memories) -> Callable[[], None]:
        """Products in int32, which hold 255 * 255, folded modulo 2^32."""
        a = memories.columns_view(self.grid, self.loops, self.a)
        b = memories.columns_view(self.grid, self.loops, self.b)
        acc = memories.columns_view(self.grid, self.leading, self.acc)
        axes = tuple(range(2 + len(self.leading), a.ndim))
        product = memories.scratch(0, np.int32, a.shape)

        def run() -> None:
            np.multiply(a, b, out=product, dtype=np.int32)
            np.add(acc, np.add.reduce(product, axis=axes, dtype=np.int32), out=acc)

        return run

    def cycles(self, machine: Machine) -> Cost:
        """``macs_per_pe`` products per cycle within one output; outputs one after the other."""
        return Cost(mac=prod(self.leading) * ceil_div(prod(self.loops[len(self.leading) :]), machine.macs_per_pe))
