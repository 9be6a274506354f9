"""Family of convolutions on fixed point: 32 x 32 bit products, sums in 64 bits (docs/arithmetic.md, Conv)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from epu.simulator.machine import Machine

from .convolution import ConvShape, ConvStages
from .intrinsics import mulr, rshr, sat
from .kernel import Kernel, Param
from .tiling import Cut, Tiling, divisor
from .tvm_api import te
from .wide_matmul import PRODUCT_BYTES, PRODUCT_CYCLES, SUM_BYTES, WORD_BYTES

ISSUE_CYCLES, LARGEST_TILE, DEEPEST_TILE = 40, 32, 128


def wide_convolution(s: ConvShape, w_role: str) -> Kernel:
    """int32 X [batch, groups, channels, h, w], W [groups, filters, channels, kh, kw], (bias [groups, filters] in the
    output's format) → int32 Y; scalars ``product_shift`` (of each product) and ``out_shift`` (of the sum)."""
    stages = ConvStages(s)
    patch = stages.patch()
    w = stages.array("W", w_role, (s.groups, s.filters, s.channels, *s.kernel), "gfcyx", "int32")
    bias = stages.array("bias", "constant", (s.groups, s.filters), "gf", "int32") if s.bias else None
    product_shift, out_shift = (stages.scale(name) for name in ("product_shift", "out_shift"))
    reduced = [te.reduce_axis((0, n), a) for n, a in zip((s.channels, *s.kernel), "cyx")]

    def total(b: Any, g: Any, f: Any, i: Any, j: Any) -> Any:
        c, y, x = reduced
        return te.sum(mulr(patch[b, g, i, j, c, y, x], w[g, f, c, y, x], product_shift), axis=reduced)

    def finish(b: Any, g: Any, f: Any, i: Any, j: Any) -> Any:
        rounded = rshr(acc[b, g, f, i, j], out_shift)
        return sat(rounded if bias is None else rounded + bias[g, f].astype("int64"), "int32")

    out = (s.batch, s.groups, s.filters, *s.out)
    acc = stages.stage("acc", out, "bgfij", total)
    stages.stage("Y", out, "bgfij", finish)
    return Kernel(
        "wide_convolution",
        ("wide_convolution", s, w_role),
        (*stages.params, Param("Y", "output", out, "int32")),
        stages.tensors,
        stages.axes,
        tuple(stages.stages),
        lambda machine, budget: wide_conv_tiling(s, machine, budget),
        reduced={"acc": ("c", "y", "x")},
        padded=frozenset({"padded"} & set(stages.stages)),
        gathers=frozenset({"patch"}),
    )


@lru_cache(maxsize=512)
def wide_conv_tiling(s: ConvShape, machine: Machine, budget: int) -> Tiling:
    """Pixels over the rows, filters, then groups over the columns; the cheapest tiles by :func:`cost` that fit the LRM."""
    room = machine.lrm_bytes * min(budget, 60) // 64
    fitting = [cuts for cuts in _candidates(s, machine) if lrm_bytes(s, cuts) <= room]
    smallest = next(_candidates(s, machine))
    return min(fitting, key=lambda cuts: cost(cuts, machine), default=smallest)


def _candidates(s: ConvShape, machine: Machine) -> Iterator[Tiling]:
    """Tilings, the one of the smallest tiles first."""
    (oh, ow), (kh, kw) = s.out, s.kernel
    row_j = divisor(ow, machine.rows)
    row_i = divisor(oh, machine.rows // row_j)
    row_b = divisor(s.batch, machine.rows // (row_j * row_i))
    col_f = divisor(s.filters, machine.cols)
    col_g = divisor(s.groups, machine.cols // col_f)
    outer = {"b": Cut(s.batch // row_b, row_b), "g": Cut(s.groups // col_g, col=col_g)}
    for i in _divisors(oh // row_i, LARGEST_TILE):
        for j in _divisors(ow // row_j, LARGEST_TILE):
            for f in _divisors(s.filters // col_f, LARGEST_TILE):
                for c, y, x in _depths(s):
                    yield {
                        **outer,
                        "f": Cut(s.filters // (col_f * f), col=col_f, local=f),
                        "i": Cut(oh // (row_i * i), row_i, local=i),
                        "j": Cut(ow // (row_j * j), row_j, local=j),
                        "c": Cut(s.channels // c, local=c),
                        "y": Cut(kh // y, local=y),
                        "x": Cut(kw // x, local=x),
                    }


def _depths(s: ConvShape) -> list[tuple[int, int, int]]:
    """Channels, rows and columns of the kernel that one instruction sums: parts of a kernel's rows, then whole kernels."""
    (kh, kw), taps = s.kernel, s.kernel[0] * s.kernel[1]
    parts = [(1, 1, x) for x in _divisors(kw, DEEPEST_TILE)] + [(1, y, kw) for y in _divisors(kh, DEEPEST_TILE)]
    whole = [(c, kh, kw) for c in _divisors(s.channels, max(1, DEEPEST_TILE // taps))]
    return [*dict.fromkeys((*parts, *whole))]


def _divisors(extent: int, limit: int) -> list[int]:
    return [d for d in range(1, min(extent, limit) + 1) if extent % d == 0]


def _sizes(cuts: Tiling) -> tuple[int, int, int]:
    """Pixels, filters and products per output of one PE's tile."""
    local = {axis: cut.local for axis, cut in cuts.items()}
    return local["i"] * local["j"], local["f"], local["c"] * local["y"] * local["x"]


def lrm_bytes(s: ConvShape, cuts: Tiling) -> int:
    """Bytes of operand tiles, products, sums, result and bias in one PE."""
    pixels, filters, depth = _sizes(cuts)
    outputs = pixels * filters
    operands = (pixels + filters) * depth * WORD_BYTES + filters * WORD_BYTES * s.bias
    return operands + outputs * (depth * PRODUCT_BYTES + 2 * SUM_BYTES + WORD_BYTES)


def cost(cuts: Tiling, machine: Machine) -> float:
    """Estimated cycles, with a little for each instruction that the simulator runs."""
    pixels, filters, depth = _sizes(cuts)
    steps = {axis: cut.step for axis, cut in cuts.items()}
    rows = cuts["b"].row * cuts["i"].row * cuts["j"].row
    loads = pixels * depth * rows + filters * depth
    products = pixels * filters * depth * PRODUCT_CYCLES
    tiles = steps["b"] * steps["g"] * steps["f"] * steps["i"] * steps["j"]
    deep = steps["c"] * steps["y"] * steps["x"]
    return tiles * (deep * (loads + products + ISSUE_CYCLES) + pixels * filters * (6 + rows) + ISSUE_CYCLES)
