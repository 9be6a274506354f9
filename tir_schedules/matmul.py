"""Family of int8 matrix products on the systolic array, with bias and requantisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .kernel import Kernel, Param
from .matmul_tiling import Product, matmul_tiling, on_bus
from .requantise import requantise
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
    observed: bool = False  # whether the sum before requantisation can be seen

    @property
    def product(self) -> Product:
        """What the choice of tiles depends on."""
        per_output = 1 + (4 if self.bias else 0)
        per_column = 4 * (self.bias + 2 * self.per_column)
        contiguous = ("k", "k" if self.transposed else "n", "n")
        return Product(self.batch, self.m, self.n, self.k, (per_output, per_column), contiguous)


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
        lambda machine, budget: matmul_tiling(shape.product, machine, budget),
        reduced={"acc": ("k",)},
        broadcast=lambda tiling: frozenset({on_bus(tiling)}),
        dots=frozenset({"acc"}),
        observed=(stages[-1],) if shape.observed else (),
        macs=b * m * n * k,
    )
