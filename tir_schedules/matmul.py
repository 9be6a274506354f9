"""Family of int8 matrix products on the systolic array, with bias and requantisation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Any

from epu.simulator.machine import Machine

from .kernel import Kernel, Param
from .requantise import requantise
from .tiling import Cut, Tiling, divisor
from .tvm_api import te


@dataclass(frozen=True)
class MatmulShape:
    """``batch`` products [m, k] x [k, n]. ``transposed``: B is given as [n, k] (constants), shared by the batch."""

    batch: int
    m: int
    n: int
    k: int
    transposed: bool
    bias: bool
    per_column: bool
    rounding: str
    a_dtype: str = "int8"
    b_dtype: str = "int8"
    dtype: str = "int8"


def matmul(shape: MatmulShape) -> Kernel:
    """Parameters A [batch, m, k], B, (bias [n] int32), factor and shift (scalars, or [n] per column), zero_point, Y."""
    b, m, n, k = shape.batch, shape.m, shape.n, shape.k
    depth = te.reduce_axis((0, k), "k")
    a = te.placeholder((b, m, k), shape.a_dtype, name="A")
    w = te.placeholder((n, k) if shape.transposed else (b, k, n), shape.b_dtype, name="B")
    tensors: dict[str, Any] = {"A": a, "B": w}
    axes = {"A": ("b", "m", "k"), "B": ("n", "k") if shape.transposed else ("b", "k", "n")}
    params = [
        Param("A", "input", (b, m, k), shape.a_dtype),
        Param("B", "constant" if shape.transposed else "input", tuple(int(d) for d in w.shape), shape.b_dtype),
    ]
    vectors = (["bias"] if shape.bias else []) + (["factor", "shift"] if shape.per_column else [])
    for name in vectors:
        tensors[name], axes[name] = te.placeholder((n,), "int32", name=name), ("n",)
        params.append(Param(name, "constant", (n,), "int32"))
    scalars = [name for name in ("factor", "shift", "zero_point") if name not in vectors]
    for name in scalars:
        tensors[name] = te.var(name, "int64")
        params.append(Param(name, "scalar"))

    def product(g: Any, i: Any, j: Any) -> Any:
        right = w[j, depth] if shape.transposed else w[g, depth, j]
        return te.sum(a[g, i, depth].astype("int32") * right.astype("int32"), axis=depth)

    acc = tensors["acc"] = te.compute((b, m, n), product, name="acc")

    stages = ["acc"]
    if shape.bias:
        bias = tensors["bias"]
        tensors["total"] = te.compute((b, m, n), lambda g, i, j: acc[g, i, j] + bias[j], name="total")
        stages.append("total")
    total = tensors[stages[-1]]

    def finish(g: Any, i: Any, j: Any) -> Any:
        factor, shift = (tensors[x][j] if shape.per_column else tensors[x] for x in ("factor", "shift"))
        return requantise(total[g, i, j], factor, shift, tensors["zero_point"], shape.rounding, shape.dtype)

    tensors["Y"] = te.compute((b, m, n), finish, name="Y")
    params.append(Param("Y", "output", (b, m, n), shape.dtype))
    axes.update(dict.fromkeys((*stages, "Y"), ("b", "m", "n")))
    return Kernel(
        "matmul",
        ("matmul", shape),
        tuple(params),
        tensors,
        axes,
        (*stages, "Y"),
        lambda machine, budget: matmul_tiling(shape, machine, budget),
        reduced={"acc": ("k",)},
        broadcast=frozenset({"B"}),
        dots=frozenset({"acc"}),
        macs=b * m * n * k,
    )


@lru_cache(maxsize=512)
def matmul_tiling(shape: MatmulShape, machine: Machine, budget: int) -> Tiling:
    """The cheapest tiling by :func:`cost` whose tiles fit the LRM."""
    room = machine.lrm_bytes * min(budget, 60) // 64
    best = min(_candidates(shape, machine, room), key=lambda cuts: cost(shape, cuts, machine), default=None)
    m, n, k = best or (
        Cut(shape.m // divisor(shape.m, machine.rows), divisor(shape.m, machine.rows)),
        Cut(shape.n // divisor(shape.n, machine.cols), col=divisor(shape.n, machine.cols)),
        Cut(shape.k),
    )
    return {"b": Cut(step=shape.batch), "m": m, "n": n, "k": k}


def _divisors(extent: int, limit: int) -> list[int]:
    return [d for d in range(1, min(extent, limit) + 1) if extent % d == 0]


def _candidates(shape: MatmulShape, machine: Machine, room: int) -> Iterator[tuple[Cut, Cut, Cut]]:
    for row in _divisors(shape.m, machine.rows)[-2:]:
        for col in _divisors(shape.n, machine.cols)[-3:]:
            for ring in _divisors(gcd(col, shape.k), col):
                yield from _local_candidates(shape, room, row, col, ring)


def _local_candidates(shape: MatmulShape, room: int, row: int, col: int, ring: int) -> Iterator[tuple[Cut, Cut, Cut]]:
    for mi in _divisors(shape.m // row, 64):
        for nj in _divisors(shape.n // col, 64):
            left = room - lrm_outputs(shape, mi, nj)
            fitting = [d for d in _divisors(shape.k // ring, 1 << 12) if mi * d <= left]
            for kl in fitting[-2:]:
                yield (
                    Cut(shape.m // (row * mi), row, local=mi),
                    Cut(shape.n // (col * nj), col=col, local=nj),
                    Cut(shape.k // (ring * kl), ring=ring, local=kl),
                )


def lrm_outputs(shape: MatmulShape, mi: int, nj: int) -> int:
    """LRM bytes of accumulators, temporaries, result and column vectors."""
    per_output = 4 + 1 + (4 if shape.bias else 0)
    return mi * nj * per_output + nj * 4 * (shape.bias + 2 * shape.per_column) + 64


def cost(shape: MatmulShape, cuts: tuple[Cut, Cut, Cut], machine: Machine) -> float:
    """Estimated cycles of one batch entry; the machine's own instruction costs decide what is reported."""
    m, n, k = cuts
    word = machine.port_bytes
    a_words = m.local * (-(-k.local // word) if k.local % word == 0 else k.local)
    packed = (shape.transposed and k.local % word == 0) or (not shape.transposed and n.local % word == 0)
    bus = n.local * k.local / (word if packed else 1)
    move = m.local * -(-k.local // word) if k.ring > 1 else 0
    product = -(-m.local * n.local * k.local // machine.macs_per_pe)
    inner = m.row * a_words + k.ring * (max(product, bus) + move)
    outputs = m.local * n.local
    finish = outputs * (5 + shape.bias) + m.row * (outputs / word if n.local % word == 0 else outputs)
    return m.step * n.step * (k.step * (inner + 40) + finish + 40)
