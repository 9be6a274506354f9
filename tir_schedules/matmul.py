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
    """``batch`` products [m, k] x [k, n]. ``transposed``: B is given as [n, k], shared by the batch.

    ``row_terms``: b's zero point times the sums of A's rows is subtracted; ``column_terms``: a's times those of B's columns.
    """

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
    row_terms: bool = False
    column_terms: bool = False
    integer: bool = False  # the result is the int32 sum itself
    addend: bool = False  # a value per column is added after the scaling, in the place of the zero point

    @property
    def has_total(self) -> bool:
        """Whether anything is added to the sum of products."""
        return self.bias or self.row_terms or self.column_terms

    @property
    def product(self) -> Product:
        """What the choice of tiles depends on."""
        terms = self.row_terms + self.column_terms
        per_output = (4 if self.dtype == "int32" else 1) + (4 if self.has_total else 0) + 8 * terms
        per_column = 4 * (self.bias + self.addend + 2 * self.per_column + 2 * terms)
        contiguous = ("k", "k" if self.transposed else "n", "n")
        return Product(self.batch, self.m, self.n, self.k, (per_output, per_column), contiguous)


def matmul(shape: MatmulShape) -> Kernel:
    """Parameters A [batch, m, k], B, (bias [n] int32), (row_sums [batch, m], b_zero [n]), (column_sums [batch, n], a_zero),
    factor and shift (scalars, or [n] per column), zero_point (or addend [n]), Y."""
    builder = _Builder(shape)
    builder.sums()
    builder.total()
    builder.result()
    return builder.kernel()


class _Builder:
    def __init__(self, shape: MatmulShape) -> None:
        self.shape = shape
        self.tensors: dict[str, Any] = {}
        self.axes: dict[str, tuple[str, ...]] = {}
        self.params: list[Param] = []
        self.stages: list[str] = []

    def array(self, name: str, role: str, axes: str, dtype: str = "int32") -> Any:
        extents = tuple(getattr(self.shape, "batch" if axis == "b" else axis) for axis in axes)
        self.tensors[name], self.axes[name] = te.placeholder(extents, dtype, name=name), tuple(axes)
        self.params.append(Param(name, role, extents, dtype))
        return self.tensors[name]

    def scalar(self, name: str) -> Any:
        self.tensors[name] = te.var(name, "int64")
        self.params.append(Param(name, "scalar"))
        return self.tensors[name]

    def stage(self, name: str, body: Any) -> None:
        extents = (self.shape.batch, self.shape.m, self.shape.n)
        self.tensors[name], self.axes[name] = te.compute(extents, body, name=name), ("b", "m", "n")
        self.stages.append(name)

    def sums(self) -> None:
        shape, depth = self.shape, te.reduce_axis((0, self.shape.k), "k")
        a = self.array("A", "input", "bmk", shape.a_dtype)
        w = self.array("B", *(("constant", "nk") if shape.transposed else ("input", "bkn")), shape.b_dtype)

        def product(g: Any, i: Any, j: Any) -> Any:
            right = w[j, depth] if shape.transposed else w[g, depth, j]
            return te.sum(a[g, i, depth].astype("int32") * right.astype("int32"), axis=depth)

        self.stage("acc", product)

    def total(self) -> None:
        """What is added to the sums: one addition of int32, or the terms of zero points in 64 bits."""
        shape, acc = self.shape, self.tensors["acc"]
        bias = self.array("bias", "constant", "n") if shape.bias else None
        if not shape.row_terms and not shape.column_terms:
            if bias is not None:
                self.stage("total", lambda g, i, j: acc[g, i, j] + bias[j])
            return
        rows = (
            (self.array("row_sums", "input", "bm"), self.array("b_zero", "constant", "n")) if shape.row_terms else None
        )
        columns = (self.array("column_sums", "input", "bn"), self.scalar("a_zero")) if shape.column_terms else None

        def body(g: Any, i: Any, j: Any) -> Any:
            found = acc[g, i, j].astype("int64")
            if bias is not None:
                found = found + bias[j].astype("int64")
            if rows is not None:
                found = found - rows[0][g, i].astype("int64") * rows[1][j].astype("int64")
            if columns is not None:
                found = found - columns[0][g, j].astype("int64") * columns[1]
            return found.astype("int32")

        self.stage("total", body)

    def result(self) -> None:
        shape, total = self.shape, self.tensors[self.stages[-1]]
        if shape.integer:
            self.stage("Y", lambda g, i, j: total[g, i, j])
        else:
            kind = (lambda name: self.array(name, "constant", "n")) if shape.per_column else self.scalar
            factor, shift = kind("factor"), kind("shift")
            added = self.array("addend", "constant", "n") if shape.addend else self.scalar("zero_point")

            def finish(g: Any, i: Any, j: Any) -> Any:
                scaled = (factor[j], shift[j]) if shape.per_column else (factor, shift)
                last = added[j] if shape.addend else added
                return requantise(total[g, i, j], *scaled, last, shape.rounding, shape.dtype)

            self.stage("Y", finish)
        extents = (shape.batch, shape.m, shape.n)
        self.params.append(Param("Y", "output", extents, shape.dtype))

    def kernel(self) -> Kernel:
        shape = self.shape
        return Kernel(
            "matmul",
            ("matmul", shape),
            tuple(self.params),
            self.tensors,
            self.axes,
            tuple(self.stages),
            lambda machine, budget: matmul_tiling(shape.product, machine, budget),
            reduced={"acc": ("k",)},
            broadcast=lambda tiling: frozenset({on_bus(tiling)}),
            dots=frozenset({"acc"}),
            observed=(self.stages[-2],) if shape.observed else (),
            macs=shape.batch * shape.m * shape.n * shape.k,
        )
