"""Family of kernels that normalise rows: softmax and layer norm (docs/arithmetic.md has every line).

A row lies over neighbouring columns of the array; what is computed once per row is computed by each of its PEs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .intrinsics import clz, mulr, rshr, sat
from .kernel import Kernel, Param
from .requantise import requantise
from .tiling import rows_over_array
from .tvm_api import te, tir

INT32_MAX, UINT32_MAX, ONE_Q30 = (1 << 31) - 1, (1 << 32) - 1, 1 << 30
NEWTON_STEPS = 3


def i64(value: Any) -> Any:
    """An int64 constant, or the value widened."""
    return tir.const(value, "int64") if isinstance(value, int) else value.astype("int64")


class RowStages:
    """Collects the stages of a kernel over ``rows`` x ``length``."""

    def __init__(self, rows: int, length: int) -> None:
        self.rows, self.length = rows, length
        self.tensors: dict[str, Any] = {}
        self.axes: dict[str, tuple[str, ...]] = {}
        self.reduced: dict[str, tuple[str, ...]] = {}
        self.params: list[Param] = []
        self.stages: list[str] = []

    def array(self, name: str, role: str, shape: tuple[int, ...], axes: tuple[str, ...], dtype: str) -> Any:
        self.tensors[name], self.axes[name] = te.placeholder(shape, dtype, name=name), axes
        self.params.append(Param(name, role, shape, dtype))
        return self.tensors[name]

    def scalar(self, name: str) -> Any:
        self.tensors[name] = te.var(name, "int64")
        self.params.append(Param(name, "scalar"))
        return self.tensors[name]

    def each(self, name: str, body: Callable[[Any, Any], Any]) -> Any:
        """One value per element."""
        return self._add(name, ("m", "n"), te.compute((self.rows, self.length), body, name=name))

    def row(self, name: str, body: Callable[[Any], Any]) -> Any:
        """One value per row."""
        return self._add(name, ("m",), te.compute((self.rows,), body, name=name))

    def fold(self, name: str, reducer: Any, body: Callable[[Any, Any], Any]) -> Any:
        """A row's values folded into one."""
        axis = te.reduce_axis((0, self.length), name + "_n")
        self.reduced[name] = ("n",)
        return self._add(name, ("m",), te.compute((self.rows,), lambda m: reducer(body(m, axis), axis=axis), name=name))

    def _add(self, name: str, axes: tuple[str, ...], tensor: Any) -> Any:
        self.tensors[name], self.axes[name] = tensor, axes
        self.stages.append(name)
        return tensor

    def kernel(self, family: str, key: tuple[Any, ...], observed: tuple[str, ...], share: int) -> Kernel:
        """``share``: how much of the elements-per-PE budget a row may take."""
        shape = (self.rows, self.length)
        self.params.append(Param("Y", "output", shape, str(self.tensors["Y"].dtype)))
        rows, length = self.rows, self.length
        return Kernel(
            family,
            key,
            tuple(self.params),
            self.tensors,
            self.axes,
            tuple(self.stages),
            lambda machine, budget: rows_over_array("m", rows, "n", length, machine, max(1, budget * share // 64)),
            reduced=self.reduced,
            observed=observed,
        )


Stage = Callable[..., Any]  # (name, body of the element's indices) -> TE tensor


def reciprocal(stage: Stage, d: Any, seed: tuple[int, int]) -> Any:
    """Stages: ``2**62 / d`` for ``2**31 <= d < 2**32``, below 2**31."""
    r = stage("recip0", lambda *at: i64(seed[0]) - mulr(seed[1], d(*at), 32))
    for step in range(NEWTON_STEPS):
        r = _newton_reciprocal(stage, f"recip{step + 1}", r, d)
    return stage("recip", lambda *at: tir.min(r(*at), i64(INT32_MAX)).astype("int32"))


def _newton_reciprocal(stage: Stage, name: str, r: Any, d: Any) -> Any:
    return stage(name, lambda *at: mulr(r(*at), i64(1 << 32) - mulr(r(*at), d(*at), 31), 31))


def inverse_sqrt(stage: Stage, v: Any, seed: tuple[int, ...]) -> Any:
    """Stages: Q30 of ``1 / sqrt(v * 2**-32)`` for ``2**30 <= v < 2**32``."""
    line = stage("root_seed", lambda *at: i64(seed[1]) - mulr(seed[2], v(*at), 32))
    r = stage("root0", lambda *at: tir.min(i64(seed[0]) - mulr(line(*at), v(*at), 31), i64(INT32_MAX)))
    for step in range(NEWTON_STEPS):
        r = _newton_root(stage, step + 1, r, v)
    return stage("inverse_root", lambda *at: r(*at).astype("int32"))


def _newton_root(stage: Stage, step: int, r: Any, v: Any) -> Any:
    square = stage(f"root_square{step}", lambda *at: mulr(mulr(r(*at), v(*at), 32), r(*at), 30))
    body = lambda *at: tir.min(mulr(r(*at), i64(3 * ONE_Q30) - square(*at), 31), i64(INT32_MAX))  # noqa: E731
    return stage(f"root{step}", body)


def softmax_tail(s: RowStages, e: Any, seed: tuple[int, int], name: str) -> Any:
    """Q30 exponentials with row maximum 2**30 → int32 shares with ``30 - share_shift`` fraction bits."""
    shift = s.scalar("share_shift")
    total = s.fold("total", te.sum, lambda m, n: i64(e[m, n]))
    length = s.row("length", lambda m: i64(64) - clz(total[m]))
    zero = i64(0)
    leading = s.row(
        "leading",
        lambda m: (total[m] >> tir.max(length[m] - i64(32), zero)) << tir.max(i64(32) - length[m], zero),
    )
    inverse = reciprocal(s.row, leading, seed)
    amount = s.row("amount", lambda m: length[m] + shift)
    return s.each(name, lambda m, n: sat(mulr(e[m, n], inverse[m], amount[m]), "int32"))


def softmax_int8(
    rows: int, length: int, rounding: str, seed: tuple[int, int], x_dtype: str = "int8", dtype: str = ""
) -> Kernel:
    """int8 or uint8 X → shares (observed) → Y of ``dtype``; without it the shares are Y. Table EXP of 256 Q30 entries."""
    s = RowStages(rows, length)
    x = s.array("X", "input", (rows, length), ("m", "n"), x_dtype)
    table = s.array("EXP", "constant", (256,), ("entry",), "int32")
    top = s.fold("top", te.max, lambda m, n: x[m, n].astype("int32"))
    gap = s.each("gap", lambda m, n: (top[m] - x[m, n].astype("int32")).astype("uint8"))
    e = s.each("exponential", lambda m, n: table[gap[m, n].astype("int32")])
    p = softmax_tail(s, e, seed, "shares" if dtype else "Y")
    if dtype:
        factor, amount, zero_point = (s.scalar(name) for name in ("factor", "shift", "zero_point"))
        s.each("Y", lambda m, n: requantise(p[m, n], factor, amount, zero_point, rounding, dtype))
    key = ("softmax_int8", rows, length, rounding if dtype else "", x_dtype, dtype)
    return s.kernel("softmax", key, ("shares",) if dtype else (), share=192)


def softmax_fixed(rows: int, length: int, seed: tuple[int, int], log2_e: int, ln_2: int) -> Kernel:
    """int32 X (fraction bits in ``exponent_shift`` = f + 4) → int32 shares. Table EXP2 of 256 Q30 entries."""
    s = RowStages(rows, length)
    x = s.array("X", "input", (rows, length), ("m", "n"), "int32")
    table = s.array("EXP2", "constant", (256,), ("entry",), "int32")
    shift = s.scalar("exponent_shift")
    top = s.fold("top", te.max, lambda m, n: x[m, n])
    gap = s.each("gap", lambda m, n: sat(i64(top[m]) - i64(x[m, n]), "int32"))
    e = exp_negative(s.each, gap, table, shift, log2_e, ln_2)
    softmax_tail(s, e, seed, "Y")
    return s.kernel("softmax", ("softmax_fixed", rows, length), (), share=16)


def exp_negative(stage: Callable[..., Any], d: Any, table: Any, shift: Any, log2_e: int, ln_2: int) -> Any:
    """Stages of ``2**30 * exp(-d)``: exponent in Q26, 256-entry table, quadratic remainder.

    One operation each, and bytes where they suffice, so that a row of 170 elements fits one PE."""
    t = stage("exponent", lambda *at: sat(mulr(d(*at), log2_e, shift), "int32"))
    power = stage("power", lambda *at: (t(*at) >> 26).astype("uint8"))
    index = stage("index", lambda *at: ((t(*at) >> 18) & 255).astype("uint8"))
    entry = stage("entry", lambda *at: table[index(*at).astype("int32")])
    u = stage("remainder", lambda *at: mulr(t(*at) & 0x3FFFF, ln_2, 27).astype("int32"))
    square = stage("remainder_square", lambda *at: mulr(u(*at), u(*at), 31).astype("int32"))
    w = stage("deficit", lambda *at: square(*at) - u(*at))  # its negative: rounding half to even is symmetric
    rest = stage("entry_rest", lambda *at: mulr(entry(*at), w(*at), 30, entry(*at)).astype("int32"))
    return stage("exponential", lambda *at: rshr(rest(*at), power(*at)).astype("int32"))


LAYER_NORM_OBSERVED = (
    "mean",
    "centred",
    "square",
    "variance",
    "variance_epsilon",
    "deviation",
    "normalised",
    "scaled",
)


def layer_norm(rows: int, length: int, root_seed: tuple[int, ...], observe: bool, has_beta: bool = True) -> Kernel:
    """int32 X → int32 Y, constants gamma and beta (already in the output's format)."""
    s = RowStages(rows, length)
    power = length & (length - 1) == 0
    x = s.array("X", "input", (rows, length), ("m", "n"), "int32")
    gamma = s.array("gamma", "constant", (length,), ("n",), "int32")
    beta = s.array("beta", "constant", (length,), ("n",), "int32") if has_beta else None
    mean = _mean(s, x, power)
    x_shift, mean_shift = s.scalar("x_shift"), s.scalar("mean_to_centred")
    centred = s.each("centred", lambda m, n: sat(rshr(x[m, n], x_shift) - rshr(mean[m], mean_shift), "int32"))
    square_shift = s.scalar("square_shift")
    square = s.each("square", lambda m, n: mulr(centred[m, n], centred[m, n], square_shift))
    total = s.fold("square_total", te.sum, lambda m, n: square[m, n])
    variance = _variance(s, total, power)
    epsilon = s.scalar("epsilon")
    safe = s.row("variance_epsilon", lambda m: tir.max(variance[m] + epsilon, i64(1)))
    k = s.row("half_length", lambda m: (i64(65) - clz(safe[m])) >> i64(1))
    v = s.row("mantissa", lambda m: tir.min(rshr(safe[m], k[m] * i64(2) - i64(32)), i64(UINT32_MAX)))
    root = inverse_sqrt(s.row, v, root_seed)
    deviation_shift, normal_shift = s.scalar("deviation_shift"), s.scalar("normal_shift")
    amount = s.row("amount", lambda m: normal_shift + k[m])
    if observe:  # nothing needs the deviation; the select on its sign, always +, keeps it in the program to be seen
        deviation = s.row("deviation", lambda m: sat(rshr(mulr(root[m], v[m], 32), deviation_shift - k[m]), "int32"))
        plain = amount
        amount = s.row("kept", lambda m: tir.Select(deviation[m] >= 0, plain[m], i64(63)))
    z = s.each("normalised", lambda m, n: sat(mulr(centred[m, n], root[m], amount[m]), "int32"))
    scale_shift, out_shift = s.scalar("scale_shift"), s.scalar("out_shift")
    g = s.each("scaled", lambda m, n: sat(mulr(z[m, n], gamma[n], scale_shift), "int32"))
    offset = (lambda n: i64(beta[n])) if beta is not None else (lambda n: i64(0))
    s.each("Y", lambda m, n: sat(rshr(g[m, n], out_shift) + offset(n), "int32"))
    key = ("layer_norm", rows, length, observe, has_beta)
    return s.kernel("layer_norm", key, LAYER_NORM_OBSERVED if observe else (), share=64)


def _mean(s: RowStages, x: Any, power: bool) -> Any:
    total = s.fold("x_total", te.sum, lambda m, n: i64(x[m, n]))
    first = s.scalar("mean_first")
    if power:
        return s.row("mean", lambda m: sat(rshr(total[m], first), "int32"))
    factor, shift = s.scalar("mean_factor"), s.scalar("mean_shift")
    part = s.row("mean_part", lambda m: sat(rshr(total[m], first), "int32"))
    return s.row("mean", lambda m: sat(mulr(part[m], factor, shift), "int32"))


def _variance(s: RowStages, total: Any, power: bool) -> Any:
    first = s.scalar("variance_first")
    if power:
        return s.row("variance", lambda m: rshr(total[m], first))
    factor, shift = s.scalar("variance_factor"), s.scalar("variance_shift")
    down = s.row("down", lambda m: tir.max(i64(33) - clz(total[m]), i64(0)))
    part = s.row("variance_part", lambda m: mulr(total[m] >> down[m], factor, shift))
    return s.row("variance", lambda m: rshr(part[m], first - down[m]))
