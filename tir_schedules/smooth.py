"""Family of smooth functions: 64 polynomials of degree 5 over a window of the input (docs/arithmetic.md, smooth)."""

from __future__ import annotations

from typing import Any

from .elementwise import Points
from .intrinsics import mulr, rshr, sat
from .rowwise import i64
from .tvm_api import tir

SCALARS = ("low", "high", "factor", "shift", "out_shift", "offset")
INT32_MAX = (1 << 31) - 1


def smooth(points: Points, place_bits: int, degree: int, symmetry: str, ramp: bool) -> None:
    """int32 X → int32 Y. Tables C0 to C<degree>, scalars ``SCALARS``, and ``ramp_shift`` for a ramp."""
    x, y = points["X"], polynomial(points, folded(points) if symmetry else points["X"], place_bits, degree)

    def finish(*at: Any) -> Any:
        part = i64(y(*at))
        part = tir.Select(x(*at) < 0, i64(0) - part, part) if symmetry == "odd" else part
        total = rshr(part, points["out_shift"]) + points["offset"]
        return total + rshr(tir.max(x(*at), tir.const(0, "int32")), points["ramp_shift"]) if ramp else total

    if ramp:  # two rounding shifts: not in one expression
        line = points.stage("sum", lambda *at: finish(*at))
        points.stage("Y", lambda *at: sat(line(*at), "int32"))
    else:
        points.stage("Y", lambda *at: sat(finish(*at), "int32"))


def folded(points: Points) -> Any:
    """Stage: magnitudes of X, at most the end of the window."""
    x = points["X"]
    body = lambda *at: tir.min(tir.max(i64(x(*at)), i64(0) - i64(x(*at))), points["high"]).astype("int32")  # noqa: E731
    return points.stage("size", body)


def polynomial(points: Points, x: Any, place_bits: int, degree: int) -> Any:
    """Stages: the polynomial of each value's segment, by Horner's rule."""

    def position(*at: Any) -> Any:
        inside = tir.min(tir.max(i64(x(*at)), points["low"]), points["high"]) - points["low"]
        return tir.min(mulr(points["factor"], inside, points["shift"]), i64(INT32_MAX)).astype("int32")

    p = points.stage("position", position)
    segment = points.stage("segment", lambda *at: (p(*at) >> place_bits).astype("uint8"))
    place = points.stage("place", lambda *at: (p(*at) & ((1 << place_bits) - 1)) - (1 << (place_bits - 1)))
    entry = lambda k, *at: points[f"C{k}"][segment(*at).astype("int32")]  # noqa: E731
    y = points.stage(f"y{degree}", lambda *at: entry(degree, *at))
    for k in reversed(range(degree)):
        y = points.stage(f"y{k}", _horner(y, place, place_bits, k, entry))
    return y


def _horner(y: Any, place: Any, place_bits: int, k: int, entry: Any) -> Any:
    return lambda *at: mulr(y(*at), place(*at), place_bits, entry(k, *at)).astype("int32")
