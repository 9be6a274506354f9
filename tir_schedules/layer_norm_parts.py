"""LayerNormalization of long rows, or with float32's rounding, in three kernels (docs/arithmetic.md)."""

from __future__ import annotations

from typing import Any

from .elementwise import Points
from .folds import FoldShape, fold_rows
from .intrinsics import clz, mulr, round24, rshr, sat
from .kernel import Kernel
from .rowwise import UINT32_MAX, Stage, i64, inverse_sqrt, reciprocal
from .tvm_api import tir


def norm_mean(s: FoldShape, ort: bool) -> Kernel:
    """X → mean in X's format; scalars as of ReduceMean."""
    power = s.length & (s.length - 1) == 0

    def program(stage: Stage, total: Any, known: dict[str, Any]) -> None:
        first = stage("first_part", lambda m: sat(rshr(total[m], known["first"]), "int32"))
        if not power:
            part = first
            first = stage("mean", lambda m: sat(mulr(part[m], known["factor"], known["shift"]), "int32"))
        stage("Y", lambda m: sat(round24(first[m]), "int32") if ort else first[m])

    scalars = ("first",) if power else ("first", "factor", "shift")
    name = "norm_mean_ort" if ort else "norm_mean"
    return fold_rows(name, s, _sum(ort), lambda x, known: x.astype("int64"), program, scalars)


def _sum(ort: bool) -> str:
    return "sum24" if ort else "sum"


def norm_spread(s: FoldShape, ort: bool, seeds: tuple[tuple[int, ...], tuple[int, int]] | None) -> Kernel:
    """X and its means M → Y = R by the ``seeds`` of the inverse root and the reciprocal; without them Y = k."""
    power = s.length & (s.length - 1) == 0

    def centred(x: Any, known: dict[str, Any]) -> Any:
        return sat(rshr(x, known["x_shift"]) - rshr(known["M"], known["x_shift"]), "int32")

    def element(x: Any, known: dict[str, Any]) -> Any:
        if ort:
            return mulr(x, x, known["square_shift"])
        d = centred(x, known)
        return mulr(d, d, known["square_shift"])

    def program(stage: Stage, total: Any, known: dict[str, Any]) -> None:
        if s.padded > s.length and not ort:  # a padded zero counted as the square of -M
            zero = stage("padded_centred", lambda m: centred(i64(0), {**known, "M": known["M"][m]}))
            more, one = total, lambda m: mulr(zero[m], zero[m], known["square_shift"])
            total = stage("square_total", lambda m: more[m] - one(m) * i64(s.padded - s.length))
        found = _variance(stage, total, power, known)
        if ort:
            found = _of_squares(stage, found, known)
        safe = stage("variance_epsilon", lambda m: tir.max(found[m] + known["epsilon"], i64(1)))
        if ort:
            rounded = safe
            safe = stage("rounded_variance", lambda m: round24(rounded[m]))
        k = stage("bits" if seeds else "Y", lambda m: ((i64(65) - clz(safe[m])) >> i64(1)).astype("int32"))
        if seeds is None:
            return
        v = stage("mantissa", lambda m: tir.min(rshr(safe[m], i64(k[m]) * i64(2) - i64(32)), i64(UINT32_MAX)))
        root = inverse_sqrt(stage, v, seeds[0])
        if ort:
            deviation = stage("deviation", lambda m: round24(mulr(root[m], v[m], 32)))
            quarter = stage("leading", lambda m: tir.min(deviation[m] << i64(2), i64(UINT32_MAX)))
            root = reciprocal(stage, quarter, seeds[1])
        stage("Y", lambda m: root[m])

    scalars = ["square_shift", "variance_first", "epsilon", *([] if ort else ["x_shift"])]
    scalars += [] if power else ["variance_factor", "variance_shift"]
    name = f"norm_{'root' if seeds else 'bits'}{'_ort' if ort else ''}"
    return fold_rows(name, s, _sum(ort), element, program, scalars, ("M",))


def _variance(stage: Stage, total: Any, power: bool, known: dict[str, Any]) -> Any:
    first = known["variance_first"]
    if power:
        return stage("variance", lambda m: rshr(total[m], first))
    down = stage("down", lambda m: tir.max(i64(33) - clz(total[m]), i64(0)))
    part = stage(
        "variance_part", lambda m: mulr(total[m] >> down[m], known["variance_factor"], known["variance_shift"])
    )
    return stage("variance", lambda m: rshr(part[m], first - down[m]))


def _of_squares(stage: Stage, mean_square: Any, known: dict[str, Any]) -> Any:
    """Mean of the squares less the square of the mean."""
    mean = known["M"]
    square = stage("square_of_mean", lambda m: round24(mulr(mean[m], mean[m], known["square_shift"])))
    return stage("difference", lambda m: round24(round24(mean_square[m]) - square[m]))


def norm_scale(points: Points, ort: bool, has_beta: bool) -> None:
    """Stages: X, M, K, R, gamma, beta → Y."""
    x, middle, k, root, gamma = (points[name] for name in ("X", "M", "K", "R", "gamma"))
    near = round24 if ort else (lambda value: value)
    if ort:
        apart = points.stage("apart", lambda *at: round24(i64(x(*at)) - i64(middle(*at))))
        d = points.stage("centred", lambda *at: sat(rshr(apart(*at), 1), "int32"))
    else:
        shift = points["x_shift"]
        body = lambda *at: sat(rshr(x(*at), shift) - rshr(middle(*at), shift), "int32")  # noqa: E731
        d = points.stage("centred", body)
    amount = lambda *at: i64(k(*at)) + points["normal_shift"]  # noqa: E731
    z = points.stage("normalised", lambda *at: sat(near(mulr(d(*at), root(*at), amount(*at))), "int32"))
    name = "scaled" if has_beta else "Y"
    g = points.stage(name, lambda *at: sat(near(mulr(z(*at), gamma(*at), points["scale_shift"])), "int32"))
    if has_beta:
        beta = points["beta"]
        points.stage("Y", lambda *at: sat(near(i64(g(*at)) + i64(beta(*at))), "int32"))
