"""The Alu on whole tiles: which carrier computes an operation exactly and fast, block by block.

Three carriers, each bit-exact: the destination's own width (operations whose low bits depend on low bits only, or 32-bit
values that cannot leave 32 bits), float64 (rounding products that are checked to fit 53 bits), 64-bit integers (all else).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from epu.simulator import fixed_point as fp
from epu.simulator.layout import merge, pe_strides, sort_loops
from epu.simulator.memory import Array, Memories
from epu.simulator.operands import Grid, Imm, Lrm, Source
from epu.simulator.products import FloatProduct, may_hold, within_32_bits

BLOCK = 1 << 14  # elements per block: 128 kB of 64-bit lanes, a few of which fit the host's L2

Run = Callable[[], None]
Lane = Any  # strided view, 0-d constant, or None where the operation has no such operand

# Operations whose low result bits depend on low operand bits only.
MODULAR = {
    "mov": None,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
# Operations that never leave the width of their operands.
CLOSED = {"mov": None, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or}
COMPARE: dict[str, Any] = {"lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal}


class Lanes:
    """Views of the operands of one elementwise instruction, cut into blocks of at most BLOCK elements."""

    def __init__(self, memories: Memories, grid: Grid, loops: Sequence[int], operands: Sequence[Source | None]) -> None:
        self.memories = memories
        self.operands = operands
        stored = [each for each in operands if isinstance(each, Lrm)]
        array = pe_strides(grid, memories.machine.cols, memories.pitch)
        shape = [*grid.rows, *grid.cols, *loops]
        shape, steps = sort_loops(shape, [[*array, *each.strides] for each in stored])
        shape, steps = merge(shape, steps)
        self.shape = shape or [1]
        self._steps = iter(steps if shape else [[0]] * len(stored))

    def blocks(self) -> list[tuple[Lane, ...]]:
        """The operands of each block; an operand that repeats along an axis has length 1 there."""
        whole = [self._whole(each) for each in self.operands]
        step = max(1, BLOCK // prod(self.shape[1:]))
        cuts = [slice(start, start + step) for start in range(0, self.shape[0], step)]
        return [tuple(_cut(lane, cut) for lane in whole) for cut in cuts]

    def _whole(self, operand: Source | None) -> Lane:
        if operand is None:
            return None
        if isinstance(operand, Imm):
            return np.array(operand.value, np.int64)
        steps = next(self._steps)
        shape = [1 if step == 0 else count for count, step in zip(self.shape, steps)]
        return self.memories.view("lrm", operand.addr, fp.NUMPY_DTYPE[operand.dtype], shape, steps)


def _cut(lane: Lane, cut: slice) -> Lane:
    if lane is None or lane.ndim == 0 or lane.shape[0] == 1:
        return lane
    return lane[cut]


def plan_lanes(op: str, dst: Lrm, lanes: Lanes, saturate: bool) -> Run:
    """The function that executes an Alu operation on all blocks."""
    sources = lanes.operands[1:]
    blocks = lanes.blocks()
    carrier = _carrier(op, dst, sources, saturate)
    if carrier == "float":
        return _product_run(op, dst, sources, blocks, lanes.memories, saturate)
    if carrier == "i64" and op not in NATIVE:
        return _exact_run(op, dst, blocks, lanes.memories, saturate)
    steps = [_native(op, dst, block, carrier, lanes.memories, saturate) for block in blocks]
    if len(steps) == 1:
        return steps[0]

    def run() -> None:
        for step in steps:
            step()

    return run


UFUNC: dict[str, Any] = {**MODULAR, **CLOSED, "shl": np.left_shift, "shr": np.right_shift}
NATIVE = {*MODULAR, *CLOSED, *COMPARE, "sel", "shr", "shl"}


def _carrier(op: str, dst: Lrm, sources: Sequence[Source | None], saturate: bool) -> str:
    """The narrowest exact carrier: a dtype name, or "float" for a checked float64 product."""
    if op in ("mulr", "mulrf", "rshr"):
        return "float" if may_hold(op, sources) else "i64"
    shifts_by_register = op in ("shl", "shr") and not isinstance(sources[1], Imm)
    if not saturate and (op in MODULAR or op == "shl") and not shifts_by_register:
        return dst.dtype
    narrow = all(within_32_bits(each) for each in (sources[:1] if op == "shr" else sources))
    closed = op in CLOSED or op in COMPARE or op in ("sel", "shr")
    return "i32" if narrow and closed and not shifts_by_register else "i64"


def _native(op: str, dst: Lrm, block: tuple[Lane, ...], carrier: str, memories: Memories, saturate: bool) -> Run:
    """One block in integers of the carrier's width."""
    out, a, b, c = block[:4]
    dtype = fp.NUMPY_DTYPE[carrier]
    most = 63 if op == "shl" or carrier == "i64" else 31
    if op in ("shl", "shr") and b.ndim == 0:
        b = np.clip(b, 0, most)
    load_a, a = _loaded(a, dtype, 0, memories)
    load_b, b = _loaded(b, dtype, 1, memories)
    load_c, c = _loaded(c, dtype, 2, memories)
    direct = dst.dtype == carrier and not saturate and op not in COMPARE and op != "sel"
    result = out if direct else memories.scratch(3, dtype, out.shape)
    compute = _compute(op, result, a, b, c, memories)
    store = None if direct else lambda: fp.narrow(out, result, dst.dtype, saturate)
    return _chain([load_a, load_b, load_c, compute, store])


def _chain(steps: list[Run | None]) -> Run:
    todo = [step for step in steps if step is not None]
    if len(todo) == 1:
        return todo[0]

    def run() -> None:
        for step in todo:
            step()

    return run


def _loaded(lane: Lane, dtype: np.dtype[Any], slot: int, memories: Memories) -> tuple[Run | None, Lane]:
    """(step that brings the lane to ``dtype``, or None; the lane as the operation sees it)."""
    if lane is None or lane.dtype == dtype:
        return None, lane
    if lane.ndim == 0:
        return None, lane.astype(dtype)  # low bits: a constant wraps as the operation would
    copy = memories.scratch(slot, dtype, lane.shape)
    return (lambda: np.copyto(copy, lane, casting="unsafe")), copy


def _compute(op: str, out: Array, a: Any, b: Any, c: Any, memories: Memories) -> Run:
    if op == "mov":
        return lambda: np.copyto(out, a)
    if op in COMPARE:
        compare, flags = COMPARE[op], memories.scratch(4, bool, out.shape)
        return lambda: np.copyto(out, compare(a, b, out=flags))
    if op == "sel":
        return lambda: _select(out, a, b, c, memories.scratch(4, bool, a.shape))
    ufunc = UFUNC[op]
    if op in ("shl", "shr") and b.ndim:  # amounts in registers are limited when they are read, not when planned
        return lambda: ufunc(a, np.clip(b, 0, 63), out=out)
    return lambda: ufunc(a, b, out=out)


def _select(out: Array, a: Any, b: Any, c: Any, flags: Array) -> None:
    np.not_equal(a, 0, out=flags)
    np.copyto(out, c)
    np.copyto(out, b, where=flags)


def _exact_run(op: str, dst: Lrm, blocks: list[tuple[Lane, ...]], memories: Memories, saturate: bool) -> Run:
    """64-bit integers straight from the definition of the operation."""
    meaning = fp.ALU[op]

    def run() -> None:
        for out, *sources in blocks:
            lanes = [None if each is None else each.astype(np.int64) for each in sources]
            result = memories.scratch(3, np.int64, out.shape)
            np.copyto(result, meaning(*lanes))
            fp.narrow(out, result, dst.dtype, saturate)

    return run


def _product_run(
    op: str,
    dst: Lrm,
    sources: Sequence[Source | None],
    blocks: list[tuple[Lane, ...]],
    memories: Memories,
    saturate: bool,
) -> Run:
    """Rounding products in float64, each block checked; a block that did not fit is done in 64-bit integers from then on."""
    product = FloatProduct(op, dst, sources, saturate)
    steps = [product.bind(block, memories) for block in blocks]
    exact = [_exact_run(op, dst, [block], memories, saturate) for block in blocks]
    fits = [True] * len(blocks)

    def run() -> None:
        for i, step in enumerate(steps):
            fits[i] = fits[i] and step()
            if not fits[i]:
                exact[i]()

    return run
