"""Nests that move data: Load, Store, and padded copies through the array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from epu.simulator.elementwise import Alu
from epu.simulator.instruction import Instruction
from epu.simulator.layout import merge
from epu.simulator.machine import Machine
from epu.simulator.operands import SIZES, Grid, Imm, Lrm
from epu.simulator.transfers import Load, Store

from .kernel_code import ParamOcm, extents
from .layout import row_major
from .lrm import LrmAllocator
from .nest import Access, Nest
from .padding import Piece, split_padded
from .places import Places, own_grid
from .tiling import Cut, spread

PIECE = 64  # elements that a PE holds at a time in a padded copy


def store(nest: Nest, source: Access, places: Places) -> Store:
    """LRM → OCM."""
    grid, loops = own_grid(nest), nest.of_kind("local")
    dst = places.ocm(nest.target, nest, grid, loops)
    return Store(grid, extents(loops), dst, places.lrm_value(source, nest).over(loops))


def load(nest: Nest, source: Access, places: Places) -> Load:
    """OCM → LRM; a ring loop spreads chunks over the columns modulo the ring."""
    grid, loops, ring = places.grid(nest), nest.of_kind("local"), nest.of_kind("ring")
    src = places.ocm(source, nest, grid, loops)
    if ring:
        count = ring[0].extent
        _, _, strides = places.flat(source)
        grid = Grid(grid.rows, (grid.width // count, count))
        src = ParamOcm(src.addr, src.dtype, src.row_strides, (0, strides.get(ring[0].var, 0)), src.strides, src.param)
    return Load(grid, extents(loops), places.lrm_value(nest.target, nest).over(loops), src)


def padded(nest: Nest, places: Places, lrm: LrmAllocator, machine: Machine) -> Iterator[Instruction]:
    """OCM → OCM: fills and copies of boxes (a border: fill everything, then copy the inside)."""
    size = SIZES[places.buffers[nest.target.buffer].dtype]
    address = lrm.take(PIECE * size)
    for piece in split_padded(nest, places.env):
        yield from _piece(nest, piece, places, address, machine)
    lrm.give(address, PIECE * size)


@dataclass(frozen=True)
class _Box:
    """A strided box in OCM."""

    param: str
    address: int
    strides: tuple[int, ...]


def _piece(nest: Nest, piece: Piece, places: Places, address: int, machine: Machine) -> Iterator[Instruction]:
    dtype = places.buffers[nest.target.buffer].dtype
    target = _box(nest, nest.target, piece, places)
    if piece.source is None:
        shape, (target,) = _merged(piece.shape, target)
        if target.strides == (SIZES[dtype],):
            yield from _fill_line(shape[0], target, piece.fill, address, dtype, machine)
            return
        yield from _fill(_cuts(shape, machine), target, piece.fill, address, dtype)
        return
    shape, (target, source) = _merged(piece.shape, target, _box(nest, piece.source, piece, places))
    yield from _copy(_cuts(shape, machine), target, source, address, dtype)


def _merged(shape: tuple[int, ...], *boxes: _Box) -> tuple[list[int], list[_Box]]:
    """The same boxes with as few loops as their strides allow, at least one."""
    loops, strides = merge(shape, [box.strides for box in boxes])
    loops, strides = (loops, strides) if loops else ([1], [[0] for _ in boxes])
    return loops, [replace(box, strides=tuple(each)) for box, each in zip(boxes, strides)]


def _box(nest: Nest, access: Access, piece: Piece, places: Places) -> _Box:
    name, start, strides = places.flat(access)
    steps = tuple(strides.get(loop.var, 0) for loop in nest.loops)
    return _Box(name, start + sum(low * step for low, step in zip(piece.low, steps)), steps)


def _cuts(shape: Sequence[int], machine: Machine) -> list[Cut]:
    return list(spread({str(k): extent for k, extent in enumerate(shape)}, machine, PIECE).values())


def _fill(cuts: list[Cut], target: _Box, value: int, address: int, dtype: str) -> Iterator[Instruction]:
    grid, loops, lrm = _tile(cuts, address, dtype)
    yield Alu("mov", grid, loops, lrm, Imm(value))
    for step in product(*(range(cut.step) for cut in cuts)):
        yield Store(grid, loops, _operand(cuts, target, step, dtype), lrm)


def _fill_line(
    count: int, target: _Box, value: int, address: int, dtype: str, machine: Machine
) -> Iterator[Instruction]:
    """``count`` elements that follow each other: the whole array while they last, then a part of it, a row, a PE."""
    size = SIZES[dtype]
    lrm, width = Lrm(address, dtype, (size,)), min(count, PIECE)
    places, tail = divmod(count, width)  # pieces of one PE
    steps, rest = divmod(places, machine.pes)
    grids = [*[(machine.rows, machine.cols)] * steps, (rest // machine.cols, machine.cols), (1, rest % machine.cols)]
    used = [(rows, columns) for rows, columns in grids if rows * columns]
    yield Alu(
        "mov", Grid((max(rows for rows, _ in used),), (max(columns for _, columns in used),)), (width,), lrm, Imm(value)
    )
    start = target.address
    for rows, columns in used:
        strides = (columns * width * size,), (width * size,), (size,)
        yield Store(Grid((rows,), (columns,)), (width,), ParamOcm(start, dtype, *strides, target.param), lrm)
        start += rows * columns * width * size
    if tail:
        yield Store(Grid((1,), (1,)), (tail,), ParamOcm(start, dtype, (0,), (0,), (size,), target.param), lrm)


def _copy(cuts: list[Cut], target: _Box, source: _Box, address: int, dtype: str) -> Iterator[Instruction]:
    grid, loops, lrm = _tile(cuts, address, dtype)
    for step in product(*(range(cut.step) for cut in cuts)):
        yield Load(grid, loops, lrm, _operand(cuts, source, step, dtype))
        yield Store(grid, loops, _operand(cuts, target, step, dtype), lrm)


def _tile(cuts: list[Cut], address: int, dtype: str) -> tuple[Grid, tuple[int, ...], Lrm]:
    loops = tuple(cut.local for cut in cuts)
    grid = Grid(tuple(cut.row for cut in cuts), tuple(cut.col for cut in cuts))
    return grid, loops, Lrm(address, dtype, row_major(loops, SIZES[dtype]))


def _operand(cuts: list[Cut], box: _Box, step: tuple[int, ...], dtype: str) -> ParamOcm:
    address = box.address + sum(i * cut.inner * s for i, cut, s in zip(step, cuts, box.strides))
    row = tuple(cut.col * cut.local * s for cut, s in zip(cuts, box.strides))
    col = tuple(cut.local * s for cut, s in zip(cuts, box.strides))
    return ParamOcm(address, dtype, row, col, box.strides, box.param)
