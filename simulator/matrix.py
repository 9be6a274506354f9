"""Matrix products of int8: Mac (systolic ring with broadcast weights) and MacLocal (both operands in LRM)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from epu.simulator.instruction import Cost, Instruction, ceil_div
from epu.simulator.machine import Machine
from epu.simulator.operands import Grid, Lrm, Ocm


@dataclass(frozen=True)
class Mac(Instruction):
    """``acc[m, n] += sum over k of A[m, k] * B[k, n]`` on the array, modulo 2^32.

    PE (r, c) owns the outputs (its ``m_loops`` of row r, its ``n_loops`` of column c). Its LRM holds chunk ``c % ring`` of
    A: ``k_local`` values for each m (``a.strides``: one per m loop, then k). B comes over the broadcast bus
    (``b.strides``: one per n loop, then ring, then k; ``b.col_strides`` per column digit; no row strides). A travels round
    the ring by neighbour moves and is home again at the end. ``ring`` divides the active columns.
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

    def cycles(self, machine: Machine) -> Cost:
        """Per ring step: the longer of products and bus, then the neighbour moves."""
        mac = ceil_div(prod(self.m_loops) * prod(self.n_loops) * self.k_local, machine.macs_per_pe)
        bus = self._bus_words(machine.port_bytes)
        move = prod(self.m_loops) * ceil_div(self.k_local, machine.port_bytes) if self.ring > 1 else 0
        overlap = min(mac, bus)
        ring = self.ring
        return Cost(mac=ring * mac, data_array=ring * move, data_ocm=ring * bus, overlap=ring * overlap)

    def _bus_words(self, word: int) -> int:
        """Bus words of one ring step and column: whole words where B is packed along k or the last n loop."""
        count = prod(self.n_loops) * self.k_local
        along_k = self.b.strides[-1:] == (1,) and self.k_local % word == 0
        along_n = bool(self.n_loops) and self.b.strides[len(self.n_loops) - 1] == 1 and self.n_loops[-1] % word == 0
        return ceil_div(count, word) if along_k or along_n else count


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

    def cycles(self, machine: Machine) -> Cost:
        """``macs_per_pe`` products per cycle within one output; outputs one after the other."""
        leading = len(self.loops) - self.n_reduced
        return Cost(mac=prod(self.loops[:leading]) * ceil_div(prod(self.loops[leading:]), machine.macs_per_pe))
