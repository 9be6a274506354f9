"""Family of matrix products of fixed-point tensors: 32 x 32 bit products, sums in 64 bits (docs/arithmetic.md, MatMul)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from epu.simulator.machine import Machine

from .intrinsics import mulr, rshr, sat
from .kernel import Kernel, Param
from .tiling import Cut, Tiling, divisor
from .tvm_api import te

PRODUCT_BYTES, SUM_BYTES, WORD_BYTES = 8, 8, 4
PRODUCT_CYCLES = 4  # a rounded product and its addition


@dataclass(frozen=True)
class WideShape:
    """Products [m, k] x [k, n] for each index of ``batch``; A and B carry the batch axes that ``a_axes``, ``b_axes`` list.

    ``turned``: B is given as [n, k]. ``bias``: one value per column, in the output's format.
    """

    batch: tuple[int, ...]
    a_axes: tuple[int, ...]
    b_axes: tuple[int, ...]
    m: int
    n: int
    k: int
    turned: bool = False
    bias: bool = False
    a_role: str = "input"
    b_role: str = "input"


def wide_matmul(s: WideShape) -> Kernel:
    """int32 A, B → int32 Y; scalars ``product_shift`` (of each product) and ``out_shift`` (of the sum)."""
    labels = tuple(f"b{axis}" for axis in range(len(s.batch)))
    right = ("n", "k") if s.turned else ("k", "n")
    axes = {"A": (*(labels[x] for x in s.a_axes), "m", "k"), "B": (*(labels[x] for x in s.b_axes), *right)}
    sizes = {**dict(zip(labels, s.batch)), "m": s.m, "n": s.n, "k": s.k}
    params = [
        Param(name, role, tuple(sizes[axis] for axis in axes[name]), "int32")
        for name, role in (("A", s.a_role), ("B", s.b_role))
    ]
    if s.bias:
        axes["bias"] = ("n",)
        params.append(Param("bias", "constant", (s.n,), "int32"))
    tensors: dict[str, Any] = {each.name: te.placeholder(each.shape, each.dtype, name=each.name) for each in params}
    for name in ("product_shift", "out_shift"):
        tensors[name] = te.var(name, "int64")
        params.append(Param(name, "scalar"))
    whole = (*labels, "m", "n")
    axes.update(acc=whole, Y=whole)
    depth = te.reduce_axis((0, s.k), "k")

    def element(name: str, index: dict[str, Any]) -> Any:
        return tensors[name](*[index[axis] for axis in axes[name]])

    def total(*at: Any) -> Any:
        index = {**dict(zip(whole, at)), "k": depth}
        return te.sum(mulr(element("A", index), element("B", index), tensors["product_shift"]), axis=depth)

    def finish(*at: Any) -> Any:
        rounded = rshr(tensors["acc"](*at), tensors["out_shift"])
        return sat(rounded + tensors["bias"](at[-1]).astype("int64") if s.bias else rounded, "int32")

    out = tuple(sizes[axis] for axis in whole)
    tensors["acc"] = te.compute(out, total, name="acc")
    tensors["Y"] = te.compute(out, finish, name="Y")
    params.append(Param("Y", "output", out, "int32"))
    return Kernel(
        "wide_matmul",
        ("wide_matmul", s),
        tuple(params),
        tensors,
        axes,
        ("acc", "Y"),
        lambda machine, budget: wide_tiling(s, machine, budget),
        reduced={"acc": ("k",)},
    )


@lru_cache(maxsize=512)
def wide_tiling(s: WideShape, machine: Machine, budget: int) -> Tiling:
    """The cheapest tiling by :func:`cost` whose tiles fit the LRM."""
    room = machine.lrm_bytes * min(budget, 60) // 64
    fitting = [cuts for cuts in _candidates(s, machine) if lrm_bytes(s, cuts) <= room]
    m, n, k = min(fitting, key=lambda cuts: cost(s, cuts, machine), default=None) or (
        Cut(s.m // divisor(s.m, machine.rows), divisor(s.m, machine.rows)),
        Cut(s.n // divisor(s.n, machine.cols), col=divisor(s.n, machine.cols)),
        Cut(s.k),
    )
    return {**{f"b{axis}": Cut(step=extent) for axis, extent in enumerate(s.batch)}, "m": m, "n": n, "k": k}


def _divisors(extent: int, limit: int) -> list[int]:
    return [d for d in range(1, min(extent, limit) + 1) if extent % d == 0]


def _candidates(s: WideShape, machine: Machine) -> Iterator[tuple[Cut, Cut, Cut]]:
    for row in _divisors(s.m, machine.rows)[-2:]:
        for col in _divisors(s.n, machine.cols)[-2:]:
            for mi in _divisors(s.m // row, 32):
                for nj in _divisors(s.n // col, 32):
                    for kl in _divisors(s.k, 64):
                        yield (
                            Cut(s.m // (row * mi), row, local=mi),
                            Cut(s.n // (col * nj), col=col, local=nj),
                            Cut(s.k // kl, local=kl),
                        )


def lrm_bytes(s: WideShape, cuts: tuple[Cut, Cut, Cut]) -> int:
    """Bytes of operand tiles, products, sums, result and column vector in one PE."""
    m, n, k = (cut.local for cut in cuts)
    outputs = m * n
    return (
        (m + n) * k * WORD_BYTES
        + outputs * k * PRODUCT_BYTES
        + outputs * (2 * SUM_BYTES + WORD_BYTES)
        + n * WORD_BYTES * s.bias
    )


def cost(s: WideShape, cuts: tuple[Cut, Cut, Cut], machine: Machine) -> float:
    """Estimated cycles of one batch entry, with a little for each instruction that the simulator runs."""
    m, n, k = cuts
    loads = m.local * k.local * m.row + n.local * k.local
    products = m.local * n.local * k.local * PRODUCT_CYCLES
    finish = m.local * n.local * (6 + m.row)
    return m.step * n.step * (k.step * (loads + products + 40) + finish + 60)
