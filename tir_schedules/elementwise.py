"""Family of element-wise kernels with NumPy broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from .kernel import Kernel, Param
from .tiling import spread
from .tvm_api import te

Body = Callable[[dict[str, Any]], Any]

SEEN = "seen"  # the stage that can be observed


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


class Points:
    """Stages of a kernel with one value per element of the broadcast shape.

    ``self[name]`` is an operand or stage as a function of the element's indices, a scalar, or a table as a TE tensor.
    """

    def __init__(self, extents: Sequence[int]) -> None:
        self.extents = tuple(extents)
        self.axes = tuple(f"d{k}" for k in range(len(extents)))
        self.tensors: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        self.labels: dict[str, tuple[str, ...]] = {}
        self.params: list[Param] = []
        self.stages: list[str] = []

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def operand(self, name: str, role: str, dims: Sequence[int], dtype: str) -> None:
        """An operand that has the axes ``dims``."""
        inner = tuple(self.extents[k] for k in dims) or (1,)
        tensor = self.tensors[name] = te.placeholder(inner, dtype, name=name)
        self.values[name] = lambda *at: tensor(*([at[k] for k in dims] or [0]))
        self.labels[name] = tuple(self.axes[k] for k in dims) or ("one",)
        self.params.append(Param(name, role, inner, dtype))

    def table(self, name: str, entries: int, dtype: str) -> None:
        self.tensors[name] = self.values[name] = te.placeholder((entries,), dtype, name=name)
        self.labels[name] = ("entry",)
        self.params.append(Param(name, "constant", (entries,), dtype))

    def scalar(self, name: str) -> None:
        self.tensors[name] = self.values[name] = te.var(name, "int64")
        self.params.append(Param(name, "scalar"))

    def stage(self, name: str, body: Callable[..., Any]) -> Any:
        """One value per element; the last stage is Y."""
        self.tensors[name] = self.values[name] = te.compute(self.extents, body, name=name)
        self.labels[name] = self.axes
        self.stages.append(name)
        return self.tensors[name]


def staged(
    name: str,
    shape: Sequence[int],
    dtype: str,
    operands: dict[str, tuple[str, Sequence[int], str]],
    program: Callable[[Points], Any],
    scalars: Sequence[str] = (),
    tables: dict[str, tuple[int, str]] | None = None,
) -> Kernel:
    """``program`` adds the stages, the last one "Y", over the broadcast shape.

    ``operands``: name → (role, shape, dtype). ``tables``: name → (entries, dtype).
    """
    tables = tables or {}
    extents, owned = collapse(shape, [each[1] for each in operands.values()])
    points = Points(extents)
    for (operand, (role, _, kind)), dims in zip(operands.items(), owned):
        points.operand(operand, role, dims, kind)
    for table, (entries, kind) in tables.items():
        points.table(table, entries, kind)
    for scalar in scalars:
        points.scalar(scalar)
    program(points)
    points.params.append(Param("Y", "output", points.extents, dtype))
    observed = tuple(each for each in points.stages if each == SEEN)
    described = tuple((n, r, tuple(d), k) for (n, (r, _, k)), d in zip(operands.items(), owned))
    key = (name, points.extents, dtype, described, tuple(sorted(tables.items())), tuple(scalars), observed)
    sizes = dict(zip(points.axes, extents))
    return Kernel(
        name,
        key,
        tuple(points.params),
        points.tensors,
        points.labels,
        tuple(points.stages),
        lambda machine, budget: spread(sizes, machine, budget),
        observed=observed,
    )


def elementwise(
    name: str,
    shape: Sequence[int],
    dtype: str,
    operands: dict[str, tuple[str, Sequence[int], str]],
    body: Body,
    scalars: Sequence[str] = (),
    tables: dict[str, tuple[int, str]] | None = None,
    seen: Body | None = None,
) -> Kernel:
    """``Y = body(values)`` in one stage. ``body`` gets a dict with each operand's element, each scalar, and each table as
    a TE tensor. ``seen``: an observed stage before it, which it gets too."""

    def program(points: Points) -> None:
        whole = {each: points[each] for each in (*(tables or {}), *scalars)}
        given = list(operands)
        values = lambda at: {**{each: points[each](*at) for each in given}, **whole}  # noqa: E731
        if seen is not None:
            points.stage(SEEN, lambda *at: seen(values(at)))
            given.append(SEEN)
        points.stage("Y", lambda *at: body(values(at)))

    return staged(name, shape, dtype, operands, program, scalars, tables)


def elements(kernel: Kernel) -> int:
    """Elements of the kernel's main output."""
    return prod(kernel.params[-1].shape)
