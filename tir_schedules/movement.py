"""Families that move or fold windows: transposes, pooling, means over trailing axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from epu.simulator.machine import Machine

from .intrinsics import mulr, rshr, sat
from .kernel import Kernel, Param
from .requantise import requantise
from .rowwise import i64
from .tiling import Cut, Tiling, divisor, spread
from .tvm_api import te, tir
from .windows import Windows


def transpose(shape: Sequence[int], permutation: Sequence[int], dtype: str) -> Kernel:
    """Y[i…] = X with its axes in the order ``permutation``."""
    axes = tuple(f"d{k}" for k in permutation)
    out = tuple(shape[k] for k in permutation)
    x = te.placeholder(tuple(shape), dtype, name="X")

    def body(*index: Any) -> Any:
        source = dict(zip(permutation, index))
        return x(*[source[k] for k in range(len(shape))])

    y = te.compute(out, body, name="Y")
    sizes = dict(zip(axes, out))
    return Kernel(
        "transpose",
        ("transpose", tuple(shape), tuple(permutation), dtype),
        (Param("X", "input", tuple(shape), dtype), Param("Y", "output", out, dtype)),
        {"X": x, "Y": y},
        {"X": tuple(f"d{k}" for k in range(len(shape))), "Y": axes},
        ("Y",),
        lambda machine, budget: spread(sizes, machine, budget),
        gathers=frozenset({"Y"}),
    )


@dataclass(frozen=True)
class PoolShape(Windows):
    """Input [planes, height, width]; ``pads`` (top, left, bottom, right) read ``pad_value``."""

    planes: int
    height: int
    width: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]
    dtype: str
    pad_value: int


def max_pool(s: PoolShape) -> Kernel:
    """Largest value of each window; padding never wins because ``pad_value`` is the type's minimum."""
    x = te.placeholder((s.planes, s.height, s.width), s.dtype, name="X")
    tensors: dict[str, Any] = {"X": x}
    stages = []
    source = x
    if any(s.pads):
        source = tensors["padded"] = te.compute((s.planes, *s.padded), pad_body(s, x), name="padded")
        stages.append("padded")
    (sy, sx), (dy, dx) = s.strides, s.dilations
    patch = te.compute(
        (s.planes, *s.out, *s.kernel),
        lambda p, i, j, y, k: source[p, i * sy + y * dy, j * sx + k * dx],
        name="patch",
    )
    window = [te.reduce_axis((0, n), a) for n, a in zip(s.kernel, "yx")]
    y = te.compute(
        (s.planes, *s.out), lambda p, i, j: te.max(patch[p, i, j, window[0], window[1]], axis=window), name="Y"
    )
    tensors.update({"patch": patch, "Y": y})
    axes = {"X": ("p", "H", "W"), "padded": ("p", "H", "W"), "patch": tuple("pijyx"), "Y": tuple("pij")}
    return Kernel(
        "pool",
        ("max_pool", s),
        (
            Param("X", "input", tuple(int(d) for d in x.shape), s.dtype),
            Param("Y", "output", (s.planes, *s.out), s.dtype),
        ),
        tensors,
        axes,
        (*stages, "patch", "Y"),
        lambda machine, budget: pool_tiling(s, machine, budget),
        reduced={"Y": ("y", "x")},
        padded=frozenset(stages),
        gathers=frozenset({"patch"}),
    )


def pad_body(s: PoolShape, x: Any) -> Any:
    """``x`` with its border of ``pad_value``."""
    top, left = s.pads[:2]

    def body(p: Any, i: Any, j: Any) -> Any:
        inside = tir.all(i >= top, i < top + s.height, j >= left, j < left + s.width)
        return tir.if_then_else(inside, x[p, i - top, j - left], tir.const(s.pad_value, s.dtype))

    return body


def pool_tiling(s: PoolShape, machine: Machine, budget: int) -> Tiling:
    """Planes and pixels over the array, each window whole in its PE."""
    taps = s.kernel[0] * s.kernel[1]
    sizes = {"p": s.planes, "i": s.out[0], "j": s.out[1]}
    return {
        **spread(sizes, machine, max(1, 4 * budget // taps)),
        "y": Cut(local=s.kernel[0]),
        "x": Cut(local=s.kernel[1]),
    }


@dataclass(frozen=True)
class MeanShape:
    """Means over the trailing ``length`` values of each of ``rows`` rows."""

    rows: int
    length: int
    dtype: str  # of the input: int32 (fixed point), int8 or uint8
    requantised: str = ""  # type of a requantised result
    rounding: str = "exact"
    observed: bool = False  # whether the sum can be seen


def mean(s: MeanShape) -> Kernel:
    """Fixed: int32 → int32 (docs/arithmetic.md, ReduceMean). ``requantised``: sum less ``offset`` → int8 or uint8."""
    x = te.placeholder((s.rows, s.length), s.dtype, name="X")
    axis = te.reduce_axis((0, s.length), "n")
    total = te.compute((s.rows,), lambda m: te.sum(x[m, axis].astype("int64"), axis=axis), name="total")
    power = s.length & (s.length - 1) == 0
    names = ("offset", "factor", "shift", "zero_point") if s.requantised else ("first", "factor", "shift")
    names = ("first",) if power and not s.requantised else names
    scalars = {name: te.var(name, "int64") for name in names}

    def body(m: Any) -> Any:
        if s.requantised:
            acc = (total[m] - scalars["offset"]).astype("int32")
            return requantise(
                acc, scalars["factor"], scalars["shift"], scalars["zero_point"], s.rounding, s.requantised
            )
        part = sat(rshr(total[m], scalars["first"]), "int32")
        return part if power else sat(mulr(i64(part), scalars["factor"], scalars["shift"]), "int32")

    y = te.compute((s.rows,), body, name="Y")
    dtype = s.requantised or "int32"
    return Kernel(
        "mean",
        ("mean", s),
        (
            Param("X", "input", (s.rows, s.length), s.dtype),
            *(Param(name, "scalar") for name in names),
            Param("Y", "output", (s.rows,), dtype),
        ),
        {"X": x, "total": total, "Y": y, **scalars},
        {"X": ("m", "n"), "total": ("m",), "Y": ("m",)},
        ("total", "Y"),
        lambda machine, budget: mean_tiling(s, machine, budget),
        reduced={"total": ("n",)},
        observed=("total",) if s.observed else (),
    )


def mean_tiling(s: MeanShape, machine: Machine, budget: int) -> Tiling:
    """Rows over the array; a row is summed within one PE, piece by piece."""
    local = divisor(s.length, 8 * budget)
    row = divisor(s.rows, machine.rows)
    col = divisor(s.rows // row, machine.cols)
    return {"m": Cut(s.rows // (row * col), row, col), "n": Cut(s.length // local, local=local)}
