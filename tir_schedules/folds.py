"""Family of kernels that fold each row to a few values: sums, extremes, roots of squares, the row part of a softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from epu.simulator.machine import Machine

from .intrinsics import clz, mulr, round24, rshr, sat
from .kernel import Kernel, Param
from .rowwise import UINT32_MAX, Stage, i64, inverse_sqrt, reciprocal
from .tiling import Cut, Tiling, divisor
from .tvm_api import te, tir

SUM24 = te.comm_reducer(lambda a, b: round24(a + round24(b)), lambda dtype: tir.const(0, dtype), name="sum24")
REDUCERS = {"sum": te.sum, "max": te.max, "min": te.min, "sum24": SUM24}
LEAST_SHARE = 2  # a piece of less than this part of the longest allowed one is not worth its instructions
Program = Callable[[Stage, Any, dict[str, Any]], Any]  # (adds a row stage, the folded value, operands); last stage is Y


@dataclass(frozen=True)
class FoldShape:
    """``rows`` rows of ``length`` values of ``dtype``."""

    rows: int
    length: int
    dtype: str = "int32"

    @property
    def padded(self) -> int:
        """The length in whole pieces: where no divisor makes long ones, rounded up."""
        if divisor(self.length, LONGEST_PIECE) * LEAST_SHARE > min(self.length, LONGEST_PIECE):
            return self.length
        pieces = -(-self.length // LONGEST_PIECE)
        return pieces * -(-self.length // pieces)


LONGEST_PIECE = 256  # values of a row in a PE at a time


def fold_rows(
    name: str,
    s: FoldShape,
    reducer: str,
    element: Callable[[Any, dict[str, Any]], Any],
    program: Program,
    scalars: Sequence[str] = (),
    beside: Sequence[str] = (),
) -> Kernel:
    """``element`` is what is folded, of one value and the scalars and row operands.

    ``beside``: operands with one int32 per row. A padded row goes on with values that no extreme is made of, and zeros for
    the sums: ``program`` makes up for what an ``element`` makes of them.
    """
    x = te.placeholder((s.rows, s.length), s.dtype, name="X")
    known: dict[str, Any] = {scalar: te.var(scalar, "int64") for scalar in scalars}
    known.update({each: te.placeholder((s.rows,), "int32", name=each) for each in beside})
    tensors: dict[str, Any] = {"X": x, **known}
    source, stages, padded = x, [], s.padded > s.length
    if padded:
        source = tensors["padded"] = te.compute((s.rows, s.padded), _padding(s, reducer, x), name="padded")
    axis = te.reduce_axis((0, s.padded), "n")
    at_row = lambda m: {**known, **{each: known[each][m] for each in beside}}  # noqa: E731
    body = lambda m: REDUCERS[reducer](element(source[m, axis], at_row(m)), axis=axis)  # noqa: E731
    total = tensors["total"] = te.compute((s.rows,), body, name="total")
    stages.append("total")

    def stage(label: str, rule: Callable[[Any], Any]) -> Any:
        tensors[label] = te.compute((s.rows,), rule, name=label)
        stages.append(label)
        return tensors[label]

    program(stage, total, known)
    params = [Param("X", "input", (s.rows, s.length), s.dtype)]
    params += [Param(each, "input", (s.rows,), "int32") for each in beside]
    params += [Param(scalar, "scalar") for scalar in scalars]
    params.append(Param("Y", "output", (s.rows,), str(tensors["Y"].dtype)))
    widths = {"X": ("m", "x" if padded else "n"), **({"padded": ("m", "n")} if padded else {})}
    return Kernel(
        "fold",
        (name, s),
        tuple(params),
        tensors,
        {**widths, **dict.fromkeys((*stages, *beside), ("m",))},
        (*(["padded"] if padded else []), *stages),
        lambda machine, budget: fold_tiling(s, machine, budget),
        reduced={"total": ("n",)},
        padded=frozenset({"padded"}) if padded else frozenset(),
    )


def _padding(s: FoldShape, reducer: str, x: Any) -> Callable[[Any, Any], Any]:
    limits = {"max": tir.min_value(s.dtype), "min": tir.max_value(s.dtype)}
    neutral = limits.get(reducer, tir.const(0, s.dtype))
    return lambda m, n: tir.if_then_else(n < s.length, x[m, n], neutral)


def fold_tiling(s: FoldShape, machine: Machine, budget: int) -> Tiling:
    """Rows over the array; a row is folded within one PE, piece by piece."""
    local = divisor(s.padded, LONGEST_PIECE * budget // 64)
    row = divisor(s.rows, machine.rows)
    col = divisor(s.rows // row, machine.cols)
    return {"m": Cut(s.rows // (row * col), row, col), "n": Cut(s.padded // local, local=local)}


def fold_extreme(s: FoldShape, reducer: str) -> Kernel:
    """Y = the largest ("max") or smallest ("min") value of each row."""

    def program(stage: Stage, total: Any, known: dict[str, Any]) -> None:
        stage("Y", lambda m: total[m])

    return fold_rows(f"fold_{reducer}", s, reducer, lambda x, known: x, program)


def fold_sum(s: FoldShape) -> Kernel:
    """Y = sum, scalar ``shift`` to the output's format."""

    def program(stage: Stage, total: Any, known: dict[str, Any]) -> None:
        stage("Y", lambda m: sat(rshr(total[m], known["shift"]), "int32"))

    return fold_rows("fold_sum", s, "sum", lambda x, known: x.astype("int64"), program, ("shift",))


def fold_norm(s: FoldShape, seed: tuple[int, ...]) -> Kernel:
    """Y = root of the sum of squares; scalars ``square_shift`` and ``root_shift`` (docs/arithmetic.md, ReduceL2)."""

    def program(stage: Stage, total: Any, known: dict[str, Any]) -> None:
        square_root(stage, total, known["root_shift"], seed, "Y")

    element = lambda x, known: mulr(x, x, known["square_shift"])  # noqa: E731
    return fold_rows("fold_norm", s, "sum", element, program, ("square_shift", "root_shift"))


def square_root(stage: Stage, w: Any, root_shift: Any, seed: tuple[int, ...], name: str) -> Any:
    """Stages: ``sat32(rshr(mulr(R, V, 32), root_shift - k))`` with k, V, R of normal_sqrt(w), w an int64 stage."""
    k = stage("half_length", lambda *at: ((i64(65) - clz(w(*at))) >> i64(1)).astype("int32"))
    body = lambda *at: tir.min(rshr(w(*at), i64(k(*at)) * i64(2) - i64(32)), i64(UINT32_MAX))  # noqa: E731
    v = stage("mantissa", body)
    root = inverse_sqrt(stage, v, seed)
    product = stage("root_mantissa", lambda *at: mulr(root(*at), v(*at), 32))
    return stage(name, lambda *at: sat(rshr(product(*at), root_shift - i64(k(*at))), "int32"))


def sum_bits(s: FoldShape) -> Kernel:
    """Y = bits of the sum of positive values."""

    def program(stage: Stage, total: Any, known: dict[str, Any]) -> None:
        stage("Y", lambda m: (i64(64) - clz(total[m])).astype("int32"))

    return fold_rows("sum_bits", s, "sum", lambda x, known: x.astype("int64"), program)


def sum_inverse(s: FoldShape, seed: tuple[int, int]) -> Kernel:
    """Y = reciprocal of the 32 leading bits of the sum of positive values."""

    def program(stage: Stage, total: Any, known: dict[str, Any]) -> None:
        bits = stage("bits", lambda m: (i64(64) - clz(total[m])).astype("int32"))
        zero = i64(0)
        right = lambda m: tir.max(i64(bits[m]) - i64(32), zero)  # noqa: E731
        leading = stage("leading", lambda m: (total[m] >> right(m)) << tir.max(i64(32) - i64(bits[m]), zero))
        found = reciprocal(stage, leading, seed)
        stage("Y", lambda m: found[m])

    return fold_rows("sum_inverse", s, "sum", lambda x, known: x.astype("int64"), program)
