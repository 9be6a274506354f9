"""The literal engine: one array cycle, bus word or neighbour hop at a time, in Python integers.

It shares no arithmetic, layout or timing code with the fast engine; tests hold the two against each other. Each ``yield``
in an instruction's meaning is one cycle of the array and names the class it belongs to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from epu.simulator.control import Halt, Wait
from epu.simulator.elementwise import Alu, Lut, lut_fault
from epu.simulator.instruction import Instruction
from epu.simulator.machine import ALU_COST, ALU_COST_ADDEND, ALU_COST_SATURATE, LUT_COST
from epu.simulator.matrix import Mac, MacLocal
from epu.simulator.operands import Grid, Imm, Lrm, Ocm
from epu.simulator.program import Buffer, Program
from epu.simulator.reductions import AllReduce, Reduce
from epu.simulator.step_arithmetic import FOLD, MEANING, signed64, to_dtype
from epu.simulator.timing import CycleCount
from epu.simulator.transfers import Dma, Load, Store

SIZE = {"i8": 1, "u8": 1, "i32": 4, "i64": 8}
Word = Callable[[], None] | None  # what arrives with the word; None where the array takes it by itself
Work = Iterator[str]
COUNTED = ("compute", "mac", "data_array", "data_ocm", "data_external", "total")


def indices(loops: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All loop indices, last loop fastest."""
    return product(*(range(count) for count in loops))


def offset(index: Sequence[int], strides: Sequence[int]) -> int:
    """Address offset of a loop index; no strides at all mean 0."""
    return sum(i * stride for i, stride in zip(index, strides))


class StepEngine:
    """Memories as bytearrays, one per PE; queues of the three channels; counters."""

    def __init__(self, program: Program) -> None:
        self.machine = program.machine
        self._ext_bytes = program.ext_bytes
        self.start(poison=True)

    def start(self, poison: bool) -> None:
        """Begin a run at cycle 0."""
        if poison:
            self.lrm = [
                bytearray(b"\xa5" * self.machine.lrm_bytes) for _ in range(self.machine.rows * self.machine.cols)
            ]
            self.memory = {"ocm": bytearray(b"\xa5" * self.machine.ocm_bytes), "ext": bytearray(self._ext_bytes)}
        self.port: deque[tuple[int, Word]] = deque()  # (tag, word)
        self.external: dict[str, deque[tuple[int, int, Callable[[], None]]]] = {"in": deque(), "out": deque()}
        self.counts = dict.fromkeys(COUNTED, 0)
        self.marks = [dict(self.counts)]

    # Memory

    def place(self, addr: int, data: Any) -> None:
        """Put bytes into external memory."""
        self.memory["ext"][addr : addr + data.size] = data.tobytes()

    def read(self, buffer: Buffer) -> Any:
        """Copy of a buffer."""
        dtype = np.dtype({"i8": "i1", "u8": "u1", "i32": "<i4", "i64": "<i8"}[buffer.dtype])
        count = int(np.prod(buffer.shape, dtype=np.int64))
        return np.frombuffer(self.memory[buffer.space], dtype, count, buffer.addr).reshape(buffer.shape).copy()

    def write(self, buffer: Buffer, values: Any) -> None:
        """Overwrite a buffer."""
        dtype = np.dtype({"i8": "i1", "u8": "u1", "i32": "<i4", "i64": "<i8"}[buffer.dtype])
        data = np.ascontiguousarray(values, dtype).tobytes()
        self.memory[buffer.space][buffer.addr : buffer.addr + len(data)] = data

    def read_lrm(self, grid: Grid, loops: Sequence[int], operand: Lrm) -> Any:
        """Copy of an LRM operand, shape (row digits, column digits, loops)."""
        values = [self.get(pe, operand, index) for pe in self.active(grid) for index in indices(loops)]
        dtype = np.dtype({"i8": "i1", "u8": "u1", "i32": "<i4", "i64": "<i8"}[operand.dtype])
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
        row_digits, col_digits = list(indices(grid.rows))[row], list(indices(grid.cols))[col]
        across = offset(row_digits, operand.row_strides) + offset(col_digits, operand.col_strides)
        return operand.addr + across + offset(index, operand.strides)

    # Time

    def bind(self, instruction: Instruction) -> Callable[[], None]:
        """A function that executes the instruction cycle by cycle."""
        return lambda: self._execute(instruction)

    def _execute(self, instruction: Instruction) -> None:
        if isinstance(instruction, Wait):
            while self._in_flight(instruction.tag):
                self._tick("")
        elif isinstance(instruction, Halt):
            while self.port or self.external["in"] or self.external["out"]:
                self._tick("")
        elif isinstance(instruction, Dma):
            self._start_dma(instruction)
        else:
            self._run_on_array(instruction)
        self.marks.append(dict(self.counts))

    def _run_on_array(self, instruction: Instruction) -> None:
        """Queue its bus words, step its array work, then wait for the words of a synchronous instruction."""
        tag = getattr(instruction, "tag", 0)
        self.port.extend((tag, word) for word in self._bus_words(instruction))
        for cycle_class in self._array_work(instruction):
            self._tick(cycle_class)
        while any(owner == 0 for owner, _ in self.port):
            self._tick("")

    def _in_flight(self, tag: int) -> bool:
        queues = (self.port, self.external["in"], self.external["out"])
        return any(entry[0] == tag for queue in queues for entry in queue)

    def _tick(self, cycle_class: str) -> None:
        """One cycle: the array does ``cycle_class`` (if any), each channel serves its queue."""
        self.counts["total"] += 1
        if cycle_class:
            self.counts[cycle_class] += 1
        if self.port:
            _, word = self.port.popleft()
            self.counts["data_ocm"] += 1
            if word is not None:
                word()
        for queue in self.external.values():
            if queue:
                self._step_burst(queue)

    def _step_burst(self, queue: deque[tuple[int, int, Callable[[], None]]]) -> None:
        self.counts["data_external"] += 1
        tag, left, finish = queue.popleft()
        if left > 1:
            queue.appendleft((tag, left - 1, finish))
        else:
            finish()

    def window(self, start_pc: int, end_pc: int) -> CycleCount:
        """Cycles counted while the code [start_pc, end_pc) ran."""
        spent = {name: self.marks[end_pc][name] - self.marks[start_pc][name] for name in COUNTED}
        total = spent.pop("total")
        return CycleCount(total=total, **spent, overlap=sum(spent.values()) - total)

    # Transfers

    def _start_dma(self, dma: Dma) -> None:
        bandwidth = self.machine.ext_rd_gbps if dma.direction == "in" else self.machine.ext_wr_gbps
        per_cycle = bandwidth / (self.machine.clock_ghz * self.machine.num_cores)
        cycles, sent = self.machine.ext_latency, 0.0
        while sent < dma.bytes:
            sent += per_cycle
            cycles += 1
        self.external[dma.direction].append((dma.tag, cycles, lambda: self._copy_burst(dma)))

    def _copy_burst(self, dma: Dma) -> None:
        for index in indices(dma.shape):
            ext = dma.ext_addr + offset(index, dma.ext_strides)
            ocm = dma.ocm_addr + offset(index, dma.ocm_strides)
            (to, dst), (source, src) = (
                (("ocm", ocm), ("ext", ext)) if dma.direction == "in" else (("ext", ext), ("ocm", ocm))
            )
            self.memory[to][dst : dst + dma.elem_bytes] = self.memory[source][src : src + dma.elem_bytes]

    def _bus_words(self, instruction: Instruction) -> Iterator[Word]:
        if isinstance(instruction, (Load, Store)):
            yield from self._transfer_words(instruction)
        elif isinstance(instruction, Mac):
            for _ in range(instruction.ring):
                yield from [None] * mac_bus_words(instruction, self.machine.port_bytes)

    def _transfer_words(self, move: Any) -> Iterator[Word]:
        """Rows one after the other, or all at once where a Load reads the same for all; all columns in parallel."""
        inward = isinstance(move, Load)
        lrm, ocm = (move.dst, move.src) if inward else (move.src, move.dst)
        rows = list(range(move.grid.height))
        groups = [rows] if inward and not any(ocm.row_strides) else [[row] for row in rows]
        for group in groups:
            for elements in words_of(move.loops, ocm, self.machine.port_bytes):
                yield partial(self._move, move, lrm, ocm, group, elements, inward)

    def _move(self, move: Any, lrm: Lrm, ocm: Ocm, rows: list[int], elements: list[Any], inward: bool) -> None:
        size = SIZE[lrm.dtype]
        for row, col, index in product(rows, range(move.grid.width), elements):
            local = self.lrm[row * self.machine.cols + col]
            there, here = self.ocm_addr(ocm, move.grid, row, col, index), lrm.addr + offset(index, lrm.strides)
            if inward:
                local[here : here + size] = self.memory["ocm"][there : there + size]
            else:
                self.memory["ocm"][there : there + size] = local[here : here + size]

    # Array work

    def _array_work(self, instruction: Instruction) -> Work:
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
            for pe in self.active(alu.grid):
                values = [0 if each is None else self.get(pe, each, index) for each in operands]
                self.put(pe, alu.dst, index, signed64(MEANING[alu.op](*values)), alu.saturate)

    def _lut(self, lut: Lut) -> Work:
        size = SIZE[lut.table.dtype]
        for index in indices(lut.loops):
            yield from ["compute"] * LUT_COST
            for pe in self.active(lut.grid):
                entry = self.get(pe, lut.index, index)
                if not 0 <= entry < lut.entries:
                    raise lut_fault(lut.entries - 1, entry, entry)
                found = self.get(pe, Lrm(lut.table.addr + entry * size, lut.table.dtype), ())
                self.put(pe, lut.dst, index, found)

    def _reduce(self, reduce: Reduce) -> Work:
        split = len(reduce.loops) - reduce.n_reduced
        for lead in indices(reduce.loops[:split]):
            folded = {
                pe: self.get(pe, reduce.dst, lead) if reduce.accumulate else None for pe in self.active(reduce.grid)
            }
            for rest in indices(reduce.loops[split:]):
                yield from ["compute"] * fold_cost(reduce)
                for pe in folded:
                    value, old = self.get(pe, reduce.src, (*lead, *rest)), folded[pe]
                    folded[pe] = value if old is None else signed64(FOLD[reduce.op](old, value))
            for pe, total in folded.items():
                self.put(pe, reduce.dst, lead, total or 0)

    def _all_reduce(self, each: AllReduce) -> Work:
        """The values walk round each group; every PE folds each one that passes."""
        pes = self.active(each.grid)
        for index in indices(each.loops):
            walking = {pe: self.get(pe, each.src, index) for pe in pes}
            folded = dict(walking)
            for _ in range(each.group - 1):
                yield from ["data_array"] * (-(-SIZE[each.src.dtype] // self.machine.port_bytes))
                walking = {pe: walking[self._neighbour(pe, each.group)] for pe in pes}
                yield from ["compute"] * fold_cost(each)
                folded = {pe: signed64(FOLD[each.op](folded[pe], walking[pe])) for pe in pes}
            for pe in pes:
                self.put(pe, each.dst, index, folded[pe])

    def _neighbour(self, pe: int, group: int) -> int:
        """The next PE to the right within an aligned group of columns, round the end."""
        row, col = divmod(pe, self.machine.cols)
        first = col - col % group
        return row * self.machine.cols + first + (col - first + 1) % group

    def _mac(self, mac: Mac) -> Work:
        pes = self.active(mac.grid)
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
        return {m: [self.get(pe, mac.a, (*m, k)) for k in range(mac.k_local)] for m in indices(mac.m_loops)}

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
        addr = self.ocm_addr(mac.b, mac.grid, row, col, index)
        right = int.from_bytes(self.memory["ocm"][addr : addr + 1], "little", signed=mac.b.dtype == "i8")
        self.put(pe, mac.acc, (*m, *n), self.get(pe, mac.acc, (*m, *n)) + left * right)

    def _mac_local(self, mac: MacLocal) -> Work:
        split = len(mac.loops) - mac.n_reduced
        for lead in indices(mac.loops[:split]):
            todo = list(indices(mac.loops[split:]))
            while todo:
                yield "mac"
                now, todo = todo[: self.machine.macs_per_pe], todo[self.machine.macs_per_pe :]
                for rest, pe in product(now, self.active(mac.grid)):
                    value = self.get(pe, mac.a, (*lead, *rest)) * self.get(pe, mac.b, (*lead, *rest))
                    self.put(pe, mac.acc, lead, self.get(pe, mac.acc, lead) + value)


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
    return ALU_COST["add" if fold.op == "sum" else fold.op][1 if wide else 0]


def words_of(loops: Sequence[int], ocm: Ocm, word: int) -> Iterator[list[tuple[int, ...]]]:
    """Elements that travel with each bus word of one PE; a wide element travels with its last word."""
    elements = list(indices(loops))
    size = SIZE[ocm.dtype]
    if size >= word:
        for element in elements:
            yield from [[]] * (size // word - 1)
            yield [element]
        return
    full = any(stride == size and (count * size) % word == 0 for count, stride in zip(loops, ocm.strides))
    step = word // size if full else 1
    for start in range(0, len(elements), step):
        yield elements[start : start + step]


def mac_bus_words(mac: Mac, word: int) -> int:
    """Words that bring one ring step's B to one column."""
    *n_strides, ring_stride, k_stride = mac.b.strides
    offsets = [offset(n, n_strides) + k * k_stride for n in indices(mac.n_loops) for k in range(mac.k_local)]
    along_k = k_stride == 1 and mac.k_local % word == 0
    along_n = bool(n_strides) and n_strides[-1] == 1 and mac.n_loops[-1] % word == 0
    one_run = sorted(offsets) == list(range(len(offsets)))
    aligned = all(each % word == 0 for each in (mac.b.addr, ring_stride, *mac.b.col_strides))
    return -(-len(offsets) // word) if along_k or along_n or (one_run and aligned) else len(offsets)
