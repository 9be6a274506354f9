"""Averages of sliding windows: fixed point, or int8 with a requantisation; windows may count differently many values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .intrinsics import mulr, rshr, sat
from .kernel import Kernel, Param
from .movement import PoolShape, pad_body, pool_tiling
from .requantise import requantise
from .tvm_api import te


@dataclass(frozen=True)
class AverageShape:
    """``count``: values that every window counts; 0 where they differ, then the constants are arrays over the output's
    pixels. ``requantised``: type of an int8 result."""

    window: PoolShape
    count: int = 0
    requantised: str = ""
    rounding: str = "exact"
    observed: bool = False  # whether the sum can be seen

    @property
    def by_position(self) -> bool:
        return self.count == 0

    @property
    def constants(self) -> tuple[tuple[str, str], ...]:
        """Names and array types of the constants; docs/arithmetic.md, AveragePool."""
        if self.requantised:
            return (("factor", "int32"), ("shift", "int32"))
        if self.by_position or not _is_power_of_two(self.count):
            return (("first", "int32"), ("factor", "int64"), ("shift", "int32"))
        return (("first", "int32"),)


def _is_power_of_two(count: int) -> bool:
    return count & (count - 1) == 0


def average_pool(a: AverageShape) -> Kernel:
    """Parameters X [planes, height, width], the constants, Y [planes, out…]; int8 also scalars offset and zero_point."""
    s = a.window
    x = te.placeholder((s.planes, s.height, s.width), s.dtype, name="X")
    tensors: dict[str, Any] = {"X": x}
    params = [Param("X", "input", (s.planes, s.height, s.width), s.dtype)]
    axes = {
        "X": tuple("pHW"),
        "padded": tuple("pHW"),
        "patch": tuple("pijyx"),
        "total": tuple("pij"),
        "Y": tuple("pij"),
    }
    source, stages = x, []
    if any(s.pads):
        source = tensors["padded"] = te.compute((s.planes, *s.padded), pad_body(s, x), name="padded")
        stages.append("padded")
    for name, dtype in a.constants if a.by_position else ():
        tensors[name], axes[name] = te.placeholder(s.out, dtype, name=name), ("i", "j")
        params.append(Param(name, "constant", s.out, dtype))
    scalars = [] if a.by_position else [name for name, _ in a.constants]
    scalars += ["offset", "zero_point"] if a.requantised else []
    for name in scalars:
        tensors[name] = te.var(name, "int64")
        params.append(Param(name, "scalar"))
    (sy, sx), (dy, dx) = s.strides, s.dilations
    patch = te.compute(
        (s.planes, *s.out, *s.kernel),
        lambda p, i, j, y, k: source[p, i * sy + y * dy, j * sx + k * dx],
        name="patch",
    )
    y, k = (te.reduce_axis((0, n), name) for n, name in zip(s.kernel, "yx"))
    wide = "int32" if a.requantised else "int64"
    total = te.compute(
        (s.planes, *s.out), lambda p, i, j: te.sum(patch[p, i, j, y, k].astype(wide), axis=[y, k]), name="total"
    )
    tensors |= {"patch": patch, "total": total}
    tensors["Y"] = te.compute((s.planes, *s.out), _result(a, tensors), name="Y")
    params.append(Param("Y", "output", (s.planes, *s.out), a.requantised or "int32"))
    return Kernel(
        "pool",
        ("average_pool", a),
        tuple(params),
        tensors,
        {name: found for name, found in axes.items() if name in tensors},
        (*stages, "patch", "total", "Y"),
        lambda machine, budget: pool_tiling(s, machine, budget),
        reduced={"total": ("y", "x")},
        padded=frozenset(stages),
        gathers=frozenset({"patch"}),
        observed=("total",) if a.observed else (),
    )


def _result(a: AverageShape, tensors: dict[str, Any]) -> Any:
    total = tensors["total"]

    def body(p: Any, i: Any, j: Any) -> Any:
        value = {name: tensors[name][i, j] if a.by_position else tensors[name] for name, _ in a.constants}
        if a.requantised:
            acc = (total[p, i, j] - tensors["offset"]).astype("int32")
            return requantise(acc, value["factor"], value["shift"], tensors["zero_point"], a.rounding, a.requantised)
        part = sat(rshr(total[p, i, j], value["first"]), "int32")
        return sat(mulr(part.astype("int64"), value["factor"], value["shift"]), "int32") if "factor" in value else part

    return body
