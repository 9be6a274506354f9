"""Hypothesis strategies for small valid programs of every instruction."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from epu.simulator.instructions import (
    SIZES,
    AllReduce,
    Alu,
    Dma,
    Grid,
    Halt,
    Imm,
    Instruction,
    Load,
    Lrm,
    Lut,
    Mac,
    MacLocal,
    Ocm,
    Reduce,
    Store,
    Wait,
)
from epu.simulator.machine import ALU_COST, Machine
from epu.simulator.program import Constant, DebugMap, KernelSpan, Program

SLOT = 48  # bytes of an operand in LRM: up to 6 elements of 64 bits
SLOTS = 5
TABLE = SLOT * SLOTS  # the last 16 bytes of LRM
OCM_FREE = 4096  # OCM below holds the first contents of LRM
DTYPES = ("i8", "u8", "i32", "i64")
INT64 = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(-300, 300),
    st.sampled_from([(1 << 24) - 1, (1 << 24) + 1, 1 << 30, 1 << 31, (1 << 32) - 1, 1 << 52, 1 << 53, -(1 << 63)]),
)
LOOPS = st.sampled_from([(), (1,), (4,), (6,), (2, 3), (3, 2), (1, 5), (2, 1, 3), (2, 2)])


def machine(rows: int, cols: int, macs: int) -> Machine:
    return Machine("QC-N", rows, cols, macs, 8192, 256, 0.5, 3.0, 2.0, ext_latency=7)


@st.composite
def grids(draw: Any, rows: int, cols: int) -> Grid:
    height, width = draw(st.sampled_from([1, rows // 2, rows])), draw(st.sampled_from([1, cols // 2, cols]))
    return Grid(draw(digits(max(1, height))), draw(digits(max(1, width))))


def digits(count: int) -> Any:
    options = [(count,), (1, count)] + ([(2, count // 2)] if count % 2 == 0 else [])
    return st.sampled_from(options)


@st.composite
def strides(draw: Any, loops: tuple[int, ...], size: int, broadcast: bool) -> tuple[int, ...]:
    """Compact strides over a random loop order; repeated loops where ``broadcast``."""
    order = draw(st.permutations(range(len(loops))))
    found, step = [0] * len(loops), size
    for axis in order:
        if broadcast and draw(st.integers(0, 4)) == 0:
            continue
        found[axis] = step
        step *= loops[axis]
    return tuple(found)


@st.composite
def lrm(draw: Any, slot: int, loops: tuple[int, ...], dtypes: Any = DTYPES, broadcast: bool = True) -> Lrm:
    dtype = draw(st.sampled_from(dtypes))
    return Lrm(slot * SLOT, dtype, draw(strides(loops, SIZES[dtype], broadcast)))


@st.composite
def alus(draw: Any, rows: int, cols: int) -> Alu:
    op, loops = draw(st.sampled_from(sorted(ALU_COST))), draw(LOOPS)
    arity = {"mov": 1, "round24": 1, "clz": 1, "sel": 3, "mulr": 3, "mulrf": 3}.get(op, 2)
    dst = draw(lrm(0, loops, broadcast=False))
    operands: list[Any] = [draw(st.one_of(lrm(slot + 1, loops), INT64.map(Imm))) for slot in range(arity)]
    if draw(st.booleans()):
        operands[0] = dst
    shift = {"shl": 1, "shr": 1, "rshr": 1, "mulr": 2, "mulrf": 2}.get(op)
    if shift is not None and draw(st.integers(0, 3)):
        operands[shift] = Imm(draw(st.integers(-66, 66)))
    if op in ("mulr", "mulrf") and draw(st.booleans()):
        operands.append(draw(st.one_of(lrm(4, loops), INT64.map(Imm))))
    a, b, c, d = operands + [None] * (4 - len(operands))
    return Alu(op, draw(grids(rows, cols)), loops, dst, a, b, c, d, draw(st.booleans()))


@st.composite
def luts(draw: Any, rows: int, cols: int) -> list[Instruction]:
    """An index made valid by an and, then the look-up."""
    loops, grid = draw(LOOPS), draw(grids(rows, cols))
    index = draw(lrm(1, loops, broadcast=False))
    dtype = draw(st.sampled_from(("i8", "u8", "i32")))
    entries = 16 // SIZES[dtype]
    clip = Alu("and", grid, loops, index, index, Imm(entries - 1))
    return [clip, Lut(grid, loops, draw(lrm(0, loops, broadcast=False)), Lrm(TABLE, dtype), index, entries)]


@st.composite
def reduces(draw: Any, rows: int, cols: int) -> Reduce:
    loops = draw(LOOPS.filter(bool))
    n_reduced = draw(st.integers(1, len(loops)))
    dst = draw(lrm(0, loops[: len(loops) - n_reduced], broadcast=False))
    op = draw(st.sampled_from(["sum", "max", "min", "sum24"]))
    return Reduce(op, draw(grids(rows, cols)), loops, n_reduced, dst, draw(lrm(1, loops)), draw(st.booleans()))


@st.composite
def all_reduces(draw: Any, rows: int, cols: int) -> AllReduce:
    loops, grid = draw(LOOPS), draw(grids(rows, cols))
    src = draw(lrm(1, loops))
    dst = draw(lrm(0, loops, broadcast=False))
    if 0 not in src.strides and draw(st.booleans()):
        dst = src
    group = draw(st.sampled_from([n for n in (1, 2, 4) if grid.width % n == 0]))
    return AllReduce(draw(st.sampled_from(["sum", "max", "min"])), grid, loops, dst, src, group)


@st.composite
def macs(draw: Any, rows: int, cols: int) -> Mac:
    grid = draw(grids(rows, cols))
    m_loops, n_loops = draw(st.sampled_from([(), (2,), (1, 3), (3,)])), draw(st.sampled_from([(), (4,), (2, 2), (3,)]))
    ring = draw(st.sampled_from([n for n in (1, 2, 4) if grid.width % n == 0]))
    k_local = draw(st.sampled_from([1, 2, 3, 4, 8]))
    acc = draw(lrm(0, (*m_loops, *n_loops), ("i32",), broadcast=False))
    a = draw(lrm(1, (*m_loops, k_local), ("i8", "u8"), broadcast=False))
    steps = draw(strides((*n_loops, ring, k_local), 1, True))
    apart = draw(st.sampled_from([prod(n_loops) * ring * k_local, 1, 3]))
    columns = tuple(prod(grid.cols[i + 1 :]) * apart for i in range(len(grid.cols)))
    b = Ocm(
        draw(st.integers(0, 40)), draw(st.sampled_from(("i8", "u8"))), (), draw(st.sampled_from([columns, ()])), steps
    )
    return Mac(grid, m_loops, n_loops, ring, k_local, acc, a, b)


@st.composite
def mac_locals(draw: Any, rows: int, cols: int) -> MacLocal:
    loops = draw(LOOPS.filter(bool))
    n_reduced = draw(st.integers(1, len(loops)))
    acc = draw(lrm(0, loops[: len(loops) - n_reduced], ("i32",), broadcast=False))
    a, b = draw(lrm(1, loops, ("i8", "u8"))), draw(lrm(2, loops, ("i8", "u8")))
    return MacLocal(draw(grids(rows, cols)), loops, n_reduced, acc, a, b)


@st.composite
def loads(draw: Any, rows: int, cols: int, tag: int = 0, slot: int = 0) -> Load:
    loops, grid = draw(LOOPS), draw(grids(rows, cols))
    dst = draw(lrm(slot, loops, broadcast=False))
    size = SIZES[dst.dtype]
    across = draw(st.sampled_from([0, size, 4 * size]))
    row_strides = tuple(draw(st.sampled_from([across, 0])) for _ in grid.rows)
    col_strides = draw(st.sampled_from([(), tuple(across * (i + 1) for i in range(len(grid.cols)))]))
    src = Ocm(64 * size, dst.dtype, row_strides, col_strides, draw(strides(loops, size, True)))
    return Load(grid, loops, dst, src, tag)


@st.composite
def stores(draw: Any, rows: int, cols: int, tag: int = 0, slot: int = 0, addr: int = OCM_FREE) -> Store:
    loops, grid = draw(LOOPS), draw(grids(rows, cols))
    src = draw(lrm(slot, loops))
    size = SIZES[src.dtype]
    steps = draw(strides((*grid.rows, *grid.cols, *loops), size, False))
    height = len(grid.rows)
    width = height + len(grid.cols)
    dst = Ocm(addr, src.dtype, steps[:height], steps[height:width], steps[width:])
    return Store(grid, loops, dst, src, tag)


@st.composite
def dmas(draw: Any, tag: int, direction: str) -> Dma:
    shape = draw(LOOPS)
    size = draw(st.sampled_from([1, 2, 3, 4, 16]))
    ext, ocm = draw(strides(shape, size, False)), draw(strides(shape, size, False))
    ocm_addr = 6000 if direction == "in" else 100
    return Dma(direction, 5000 if direction == "out" else 300, ocm_addr, shape, ext, ocm, size, tag)


def single(rows: int, cols: int) -> Any:
    """Any synchronous instruction, as a list."""
    one = [alus, reduces, all_reduces, macs, mac_locals, loads, stores]
    return st.one_of(*(each(rows, cols).map(lambda found: [found]) for each in one), luts(rows, cols))


@st.composite
def overlapped(draw: Any, rows: int, cols: int) -> list[Instruction]:
    """Transfers in flight with array work beside them, in areas of their own."""
    transfers: list[Instruction] = [
        draw(dmas(1, "in")),
        draw(dmas(2, "out")),
        draw(loads(rows, cols, 3, 3)),
        draw(stores(rows, cols, 4, 4, 7000)),
        draw(dmas(1, "in")).__class__("in", 0, 6500, (30,), (1,), (1,), 1, 1),
    ]
    chosen = draw(st.permutations(transfers))[: draw(st.integers(1, 5))]
    work = [
        draw(st.one_of(macs(rows, cols), mac_locals(rows, cols), reduces(rows, cols), loads(rows, cols)))
        for _ in range(3)
    ]
    cut = draw(st.integers(0, len(chosen)))
    waits: list[Instruction] = [Wait(draw(st.integers(1, 4))) for _ in range(2)]
    return [*chosen[:cut], work[0], *chosen[cut:], work[1], waits[0], work[2], waits[1]]


def fill(target: Machine) -> list[Instruction]:
    """Bring random bytes into OCM and all of LRM."""
    words = target.lrm_bytes // 8
    grid = Grid((target.rows,), (target.cols,))
    src = Ocm(0, "i64", (target.cols * target.lrm_bytes,), (target.lrm_bytes,), (8,))
    dma = Dma("in", 0, 0, (8192,), (1,), (1,), 1, 9)
    return [dma, Wait(9), Load(grid, (words,), Lrm(0, "i64", (8,)), src)]


def program(target: Machine, body: list[Instruction], seed: int) -> Program:
    """A program that fills the memories, then runs ``body`` as one kernel."""
    head = fill(target)
    spans = (KernelSpan("fill", ("n0",), 0, len(head)), KernelSpan("body", ("n1",), len(head), len(head) + len(body)))
    rng = np.random.default_rng(seed)
    small = rng.integers(-3, 4, 1024).astype("<i8").tobytes()
    data = small if seed % 3 == 0 else rng.integers(0, 256, 8192, dtype=np.uint8).tobytes()
    constant = Constant(0, data)
    return Program(target, (*head, *body, Halt()), 8192, (constant,), debug=DebugMap(spans))
