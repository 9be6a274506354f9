"""Family of element-wise kernels with NumPy broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from .kernel import Kernel, Param
from .tiling import spread
from .tvm_api import te

Body = Callable[[dict[str, Any]], Any]


def collapse(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> tuple[list[int], list[tuple[int, ...]]]:
    """Fewest axes that describe the broadcast: (axis extents, for each operand the axes that it has)."""
    rank = len(shape)
    aligned = [(1,) * (rank - len(each)) + tuple(each) for each in operands]
    extents: list[int] = []
    patterns: list[tuple[bool, ...]] = []
    for dim, extent in enumerate(shape):
        if extent == 1:
            continue
        pattern = tuple(each[dim] != 1 for each in aligned)
        if patterns and patterns[-1] == pattern:
            extents[-1] *= extent
        else:
            extents.append(extent)
            patterns.append(pattern)
    if not extents:
        extents, patterns = [1], [(True,) * len(operands)]
    return extents, [tuple(k for k, p in enumerate(patterns) if p[index]) for index in range(len(operands))]


def elementwise(
    name: str,
    shape: Sequence[int],
    dtype: str,
    operands: dict[str, tuple[str, Sequence[int], str]],
    body: Body,
    scalars: Sequence[str] = (),
    tables: dict[str, tuple[int, str]] | None = None,
) -> Kernel:
    """``Y = body(values)`` over the broadcast shape.

    ``operands``: name → (role, shape, dtype). ``tables``: name → (entries, dtype). ``body`` gets a dict with each operand's
    element, each scalar, and each table as a TE tensor.
    """
    tables = tables or {}
    extents, owned = collapse(shape, [each[1] for each in operands.values()])
    axes = tuple(f"d{k}" for k in range(len(extents)))
    tensors: dict[str, Any] = {}
    labels: dict[str, tuple[str, ...]] = {"Y": axes}
    params: list[Param] = []
    for (operand, (role, _, kind)), dims in zip(operands.items(), owned):
        inner = tuple(extents[k] for k in dims) or (1,)
        tensors[operand] = te.placeholder(inner, kind, name=operand)
        labels[operand] = tuple(axes[k] for k in dims) or ("one",)
        params.append(Param(operand, role, inner, kind))
    for table, (entries, kind) in tables.items():
        tensors[table] = te.placeholder((entries,), kind, name=table)
        labels[table] = ("entry",)
        params.append(Param(table, "constant", (entries,), kind))
    for scalar in scalars:
        tensors[scalar] = te.var(scalar, "int64")
        params.append(Param(scalar, "scalar"))
    names = list(operands)

    def compute(*index: Any) -> Any:
        values = {n: tensors[n](*([index[k] for k in dims] or [0])) for n, dims in zip(names, owned)}
        return body({**values, **{n: tensors[n] for n in (*tables, *scalars)}})

    tensors["Y"] = te.compute(tuple(extents), compute, name="Y")
    params.append(Param("Y", "output", tuple(extents), dtype))
    key = (
        name,
        tuple(extents),
        dtype,
        tuple((n, r, tuple(d), k) for (n, (r, _, k)), d in zip(operands.items(), owned)),
    )
    key += (tuple(sorted(tables.items())), tuple(scalars))
    sizes = dict(zip(axes, extents))
    return Kernel(
        name, key, tuple(params), tensors, labels, ("Y",), lambda machine, budget: spread(sizes, machine, budget)
    )


def elements(kernel: Kernel) -> int:
    """Elements of the kernel's main output."""
    return prod(kernel.params[-1].shape)
