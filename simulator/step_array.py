"""What each instruction does on the array, one cycle at a time. Each ``yield`` is a cycle and names its class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from epu.simulator.elementwise import Alu, Lut, lut_fault
from epu.simulator.instruction import Instruction
from epu.simulator.machine import ALU_COST, ALU_COST_ADDEND, ALU_COST_SATURATE, LUT_COST
from epu.simulator.matrix import Mac, MacLocal
from epu.simulator.operands import Imm, Lrm
from epu.simulator.reductions import AllReduce, Reduce
from epu.simulator.step_arithmetic import FOLD, MEANING, folded_value, signed64
from epu.simulator.step_memory import SIZE, StepMemories, indices, offset
from epu.simulator.transfers import Load, Store

Work = Iterator[str]


class ArrayWork:
    """The PEs, working on their memories."""

    def __init__(self, memories: StepMemories) -> None:
        self.memories = memories
        self.machine = memories.machine

    def of(self, instruction: Instruction) -> Work:
        """The cycles of an instruction; transfers have none of their own."""
        if isinstance(instruction, (Load, Store)):
            return iter(())
        work: dict[type[Instruction], Callable[[Any], Work]] = {
            Alu: self._alu,
            Lut: self._lut,
            Reduce: self._reduce,
            AllReduce: self._all_reduce,
            Mac: self._mac,
            MacLocal: self._mac_local,
        }
        return work[type(instruction)](instruction)

    def _alu(self, alu: Alu) -> Work:
        plain_move = alu.op == "mov" and isinstance(alu.a, Lrm) and not alu.saturate
        operands = (alu.a, alu.b, alu.c, alu.d)
        for index in indices(alu.loops):
            yield from ["data_array" if plain_move else "compute"] * cycles_per_element(alu)
            for pe in self.memories.active(alu.grid):
                values = [0 if each is None else self.memories.get(pe, each, index) for each in operands]
                self.memories.put(pe, alu.dst, index, signed64(MEANING[alu.op](*values)), alu.saturate)

    def _lut(self, lut: Lut) -> Work:
        size = SIZE[lut.table.dtype]
        for index in indices(lut.loops):
            yield from ["compute"] * LUT_COST
            for pe in self.memories.active(lut.grid):
                entry = self.memories.get(pe, lut.index, index)
                if not 0 <= entry < lut.entries:
                    raise lut_fault(lut.entries - 1, entry, entry)
                found = self.memories.get(pe, Lrm(lut.table.addr + entry * size, lut.table.dtype), ())
                self.memories.put(pe, lut.dst, index, found)

    def _reduce(self, reduce: Reduce) -> Work:
        split = len(reduce.loops) - reduce.n_reduced
        for lead in indices(reduce.loops[:split]):
            folded: dict[int, int | None] = dict.fromkeys(self.memories.active(reduce.grid))
            if reduce.accumulate:
                folded = {pe: self.memories.get(pe, reduce.dst, lead) for pe in folded}
            for rest in indices(reduce.loops[split:]):
                yield from ["compute"] * fold_cost(reduce)
                for pe in folded:
                    value, old = self.memories.get(pe, reduce.src, (*lead, *rest)), folded[pe]
                    folded[pe] = value if old is None else FOLD[reduce.op](old, value)
            for pe, total in folded.items():
                self.memories.put(pe, reduce.dst, lead, folded_value(reduce.op, total or 0))

    def _all_reduce(self, each: AllReduce) -> Work:
        """The values walk round each group; every PE folds each one that passes."""
        pes = self.memories.active(each.grid)
        for index in indices(each.loops):
            walking = {pe: self.memories.get(pe, each.src, index) for pe in pes}
            folded = dict(walking)
            for _ in range(each.group - 1):
                yield from ["data_array"] * (-(-SIZE[each.src.dtype] // self.machine.port_bytes))
                walking = {pe: walking[self._neighbour(pe, each.group)] for pe in pes}
                yield from ["compute"] * fold_cost(each)
                folded = {pe: FOLD[each.op](folded[pe], walking[pe]) for pe in pes}
            for pe in pes:
                self.memories.put(pe, each.dst, index, folded[pe])

    def _neighbour(self, pe: int, group: int) -> int:
        """The next PE to the right within an aligned group of columns, round the end."""
        row, col = divmod(pe, self.machine.cols)
        first = col - col % group
        return row * self.machine.cols + first + (col - first + 1) % group

    def _mac(self, mac: Mac) -> Work:
        pes = self.memories.active(mac.grid)
        held = {pe: (pe % self.machine.cols % mac.ring, self._chunk(mac, pe)) for pe in pes}
        bus = mac_bus_words(mac, self.machine.port_bytes)
        for _ in range(mac.ring):
            yield from self._ring_step(mac, held, bus)
            if mac.ring > 1:
                yield from ["data_array"] * (
                    len(list(indices(mac.m_loops))) * -(-mac.k_local // self.machine.port_bytes)
                )
                held = {pe: held[self._neighbour(pe, mac.ring)] for pe in pes}

    def _chunk(self, mac: Mac, pe: int) -> dict[Any, list[int]]:
        return {m: [self.memories.get(pe, mac.a, (*m, k)) for k in range(mac.k_local)] for m in indices(mac.m_loops)}

    def _ring_step(self, mac: Mac, held: dict[int, Any], bus: int) -> Work:
        """Products of the chunk at hand, ``macs_per_pe`` per cycle; the bus may need longer than they do."""
        todo = list(product(indices(mac.m_loops), indices(mac.n_loops), range(mac.k_local)))
        cycle = 0
        while todo or cycle < bus:
            yield "mac" if todo else ""
            now, todo = todo[: self.machine.macs_per_pe], todo[self.machine.macs_per_pe :]
            for (m, n, k), pe in product(now, held):
                number, chunk = held[pe]
                self._multiply_add(mac, pe, m, n, chunk[m][k], (*n, number, k))
            cycle += 1

    def _multiply_add(self, mac: Mac, pe: int, m: Any, n: Any, left: int, index: tuple[int, ...]) -> None:
        row, col = divmod(pe, self.machine.cols)
        addr = self.memories.ocm_addr(mac.b, mac.grid, row, col, index)
        right = int.from_bytes(self.memories.memory["ocm"][addr : addr + 1], "little", signed=mac.b.dtype == "i8")
        self.memories.put(pe, mac.acc, (*m, *n), self.memories.get(pe, mac.acc, (*m, *n)) + left * right)

    def _mac_local(self, mac: MacLocal) -> Work:
        split = len(mac.loops) - mac.n_reduced
        for lead in indices(mac.loops[:split]):
            todo = list(indices(mac.loops[split:]))
            while todo:
                yield "mac"
                now, todo = todo[: self.machine.macs_per_pe], todo[self.machine.macs_per_pe :]
                for rest, pe in product(now, self.memories.active(mac.grid)):
                    value = self.memories.get(pe, mac.a, (*lead, *rest)) * self.memories.get(pe, mac.b, (*lead, *rest))
                    self.memories.put(pe, mac.acc, lead, self.memories.get(pe, mac.acc, lead) + value)


def cycles_per_element(alu: Alu) -> int:
    """Cost of the operation by the width of what it works on."""
    operands = [alu.a, alu.b] if alu.op in ("mul", "mulr", "mulrf") else [alu.dst, alu.a, alu.b, alu.c, alu.d]
    wide = any(
        not -(2**31) <= each.value < 2**32 if isinstance(each, Imm) else each is not None and each.dtype == "i64"
        for each in operands
    )
    extra = (ALU_COST_ADDEND if alu.d is not None else 0) + (ALU_COST_SATURATE if alu.saturate else 0)
    return ALU_COST[alu.op][1 if wide else 0] + extra


def fold_cost(fold: Any) -> int:
    """Cost of one addition or comparison."""
    wide = fold.src.dtype == "i64" or fold.dst.dtype == "i64"
    if fold.op == "sum24":
        return ALU_COST["add"][wide] + ALU_COST["round24"][wide]
    return ALU_COST["add" if fold.op == "sum" else fold.op][wide]


def mac_bus_words(mac: Mac, word: int) -> int:
    """Words that bring one ring step's B to one column."""
    *n_strides, ring_stride, k_stride = mac.b.strides
    offsets = [offset(n, n_strides) + k * k_stride for n in indices(mac.n_loops) for k in range(mac.k_local)]
    along_k = k_stride == 1 and mac.k_local % word == 0
    along_n = bool(n_strides) and n_strides[-1] == 1 and mac.n_loops[-1] % word == 0
    one_run = sorted(offsets) == list(range(len(offsets)))
    aligned = all(each % word == 0 for each in (mac.b.addr, ring_stride, *mac.b.col_strides))
    return -(-len(offsets) // word) if along_k or along_n or (one_run and aligned) else len(offsets)
