"""How a matrix product is cut: which operand stays in LRM and travels round the rings, which comes over the bus, tile sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from epu.simulator.machine import Machine

from .tiling import Cut, Tiling

MOST_LOCAL = 64  # outputs of one axis in one PE
STEP_OVERHEAD = 40  # cycles of a tile that no formula below counts: initial values, short loads


@dataclass(frozen=True)
class Product:
    """``batch`` products of extents m, n, k; ``extra``: LRM bytes per output and per column beside the accumulator.

    ``contiguous``: for each of A, B and Y, its axis ("m", "n" or "k") of neighbouring bytes.
    """

    batch: int
    m: int
    n: int
    k: int
    extra: tuple[int, int]
    contiguous: tuple[str, str, str]


Cuts = tuple[Cut, Cut, Cut]  # stationary operand's axis (over the rows), the other's (over the columns), k


def on_bus(tiling: Tiling) -> str:
    """The operand that comes over the bus: the one whose axis lies over the columns."""
    return "A" if tiling["n"].row > 1 or tiling["m"].col > 1 else "B"


@lru_cache(maxsize=512)
def matmul_tiling(product: Product, machine: Machine, budget: int) -> Tiling:
    """The cheapest tiling by :func:`cost` whose tiles fit the LRM, with either operand stationary."""
    room = machine.lrm_bytes * min(budget, 60) // 64
    found = [
        (cost(product, swapped, cuts, machine), swapped, cuts)
        for swapped in (False, True)
        for cuts in _candidates(product, swapped, machine, room)
    ]
    _, swapped, cuts = min(found, key=lambda each: each[:2], default=(0, False, _smallest(product, machine)))
    rows, cols, k = cuts
    m, n = (cols, rows) if swapped else (rows, cols)
    return {"b": Cut(step=product.batch), "m": m, "n": n, "k": k}


def _smallest(product: Product, machine: Machine) -> Cuts:
    row, col = _divisors(product.m, machine.rows)[-1], _divisors(product.n, machine.cols)[-1]
    return Cut(product.m // row, row), Cut(product.n // col, col=col), Cut(product.k)


def _divisors(extent: int, limit: int) -> list[int]:
    return [d for d in range(1, min(extent, limit) + 1) if extent % d == 0]


def _candidates(product: Product, swapped: bool, machine: Machine, room: int) -> Iterator[Cuts]:
    over_rows, over_cols = (product.n, product.m) if swapped else (product.m, product.n)
    for row in _divisors(over_rows, machine.rows)[-2:]:
        for col in _divisors(over_cols, machine.cols)[-3:]:
            if swapped and row == col == 1:
                continue  # nothing would tell the two apart
            for ring in _divisors(gcd(col, product.k), col):
                yield from _tiles(product, room, (over_rows // row, over_cols // col), (row, col, ring))


def _tiles(product: Product, room: int, left: tuple[int, int], array: tuple[int, int, int]) -> Iterator[Cuts]:
    row, col, ring = array
    for mine in _divisors(left[0], MOST_LOCAL):
        for theirs in _divisors(left[1], MOST_LOCAL):
            per_output, per_column = product.extra
            free = room - mine * theirs * (4 + per_output) - max(mine, theirs) * per_column
            fitting = [d for d in _divisors(product.k // ring, 1 << 12) if mine * d <= free]
            for depth in fitting[-2:]:
                k = Cut(product.k // (ring * depth), ring=ring, local=depth)
                yield Cut(left[0] // mine, row, local=mine), Cut(left[1] // theirs, col=col, local=theirs), k


def cost(product: Product, swapped: bool, cuts: Cuts, machine: Machine) -> float:
    """Estimated cycles of one batch entry; the machine's own instruction costs decide what is reported."""
    rows, cols, k = cuts
    word = machine.port_bytes
    locals_of = {"n": rows.local, "m": cols.local} if swapped else {"m": rows.local, "n": cols.local}
    locals_of["k"] = k.local
    kept, bus, result = (
        product.contiguous if not swapped else (product.contiguous[1], product.contiguous[0], product.contiguous[2])
    )

    def words(count: int, axis: str) -> float:
        return count / word if locals_of[axis] % word == 0 else count

    move = rows.local * -(-k.local // word) if k.ring > 1 else 0
    sums = -(-rows.local * cols.local * k.local // machine.macs_per_pe)
    load = rows.row * words(rows.local * k.local, kept)
    inner = load + k.ring * (max(sums, words(cols.local * k.local, bus)) + move)
    outputs = rows.local * cols.local
    finish = outputs * (5 + product.extra[0] // 8) + rows.row * words(outputs, result)
    steps = rows.step * cols.step
    return steps * (k.step * (inner + STEP_OVERHEAD) + finish + STEP_OVERHEAD)
