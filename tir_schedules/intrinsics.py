"""The array's arithmetic as TIR intrinsics.

Kernels are written with these functions. The emitter maps each to one ALU operation of the ISA; on the host, LLVM
runs the lowering below, written from the manual and independent of the simulator's NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .tvm_api import tir, tvm

Expr = Any
_PREFIX = "tir.epu_"
_PURE = 1  # tir.CallEffectKind.kPure
_LOWERINGS: dict[str, Callable[[Expr], Expr]] = {}


def _i64(value: Expr) -> Expr:
    return tir.const(value, "int64") if isinstance(value, int) else tir.Cast("int64", value)


def _lowering(name: str) -> Callable[[Callable[..., Expr]], Callable[..., Expr]]:
    def register(function: Callable[..., Expr]) -> Callable[..., Expr]:
        _LOWERINGS[name] = lambda call: function(call.dtype, *call.args)
        return function

    return register


@_lowering("rshr")
def _lower_rshr(_dtype: str, x: Expr, amount: Expr) -> Expr:
    """Floor shift, plus one where what was shifted out exceeds half an LSB, or equals it and the last bit is odd.

    No step leaves 64 bits, as adding half an LSB first would. Amounts are limited to -63..63.
    """
    one, zero, most = tir.const(1, "int64"), tir.const(0, "int64"), tir.const(63, "int64")
    right = tir.max(tir.min(amount, most), one)
    quotient = x >> right
    half = one << (right - one)
    rest = x & ((half - one) + half)
    rounded = quotient + tir.Cast("int64", rest > half - (quotient & one))
    left = tir.max(tir.min(zero - amount, most), zero)
    return tir.Select(amount >= one, rounded, x << left)


@_lowering("mulr")
def _lower_mulr(dtype: str, a: Expr, b: Expr, amount: Expr, addend: Expr) -> Expr:
    return _lower_rshr(dtype, a * b, amount) + addend


@_lowering("round24")
def _lower_round24(_dtype: str, x: Expr) -> Expr:
    """The CPU's own int64 -> float32 conversion rounds to 24 bits, half to even."""
    return tir.Cast("int64", tir.Cast("float32", x))


@_lowering("mulrf")
def _lower_mulrf(dtype: str, a: Expr, b: Expr, amount: Expr, addend: Expr) -> Expr:
    return _lower_rshr(dtype, _lower_round24(dtype, _lower_round24(dtype, a) * b), amount) + addend


@_lowering("clz")
def _lower_clz(_dtype: str, x: Expr) -> Expr:
    """LLVM's ctlz, undefined at 0, guarded."""
    zero = x == tir.const(0, "int64")
    leading = tir.Cast("int64", tir.clz(tir.Select(zero, tir.const(1, "int64"), x)))
    return tir.Select(zero, tir.const(64, "int64"), leading)


@_lowering("sat")
def _lower_sat(dtype: str, x: Expr) -> Expr:
    bits = int(dtype.lstrip("uint"))
    low, high = (0, (1 << bits) - 1) if dtype.startswith("u") else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return tir.Cast(dtype, tir.max(tir.min(x, tir.const(high, "int64")), tir.const(low, "int64")))


def register() -> None:
    """Make the intrinsics known to TVM. Idempotent within a process."""
    known = set(tvm.ir.Op.list_op_names())
    for name, lower in _LOWERINGS.items():
        full = _PREFIX + name
        if full in known:
            continue
        tvm.ir._ffi_api.RegisterOp(full, f"EPU array operation {name}; see docs/isa.md")
        tvm.ir.register_op_attr(full, "TCallEffectKind", tir.IntImm("int32", _PURE))
        tvm.ir.register_op_attr(full, "TScriptPrinterName", "epu_" + name)
        tvm.ir.register_intrin_lowering(full, target="default", f=lower)


register()


def _call(name: str, dtype: str, *arguments: Expr) -> Expr:
    return tir.call_intrin(dtype, _PREFIX + name, *[_i64(value) for value in arguments])


def rshr(x: Expr, amount: Expr) -> Expr:
    """int64: ``x * 2**-amount`` rounded half to even (``amount`` <= 0 shifts left)."""
    return _call("rshr", "int64", x, amount)


def mulr(a: Expr, b: Expr, amount: Expr, addend: Expr = 0) -> Expr:
    """int64: ``round_half_even(a * b * 2**-amount) + addend``; |a| < 2**31, |b| < 2**32."""
    return _call("mulr", "int64", a, b, amount, addend)


def mulrf(a: Expr, b: Expr, amount: Expr, addend: Expr = 0) -> Expr:
    """As :func:`mulr` with ``a`` and the product first rounded to 24 significant bits (float32 arithmetic)."""
    return _call("mulrf", "int64", a, b, amount, addend)


def round24(x: Expr) -> Expr:
    """int64: nearest value with 24 significant bits, half to even."""
    return _call("round24", "int64", x)


def clz(x: Expr) -> Expr:
    """int64: number of leading zeros of the 64-bit pattern of ``x``; 64 for 0."""
    return _call("clz", "int64", x)


def sat(x: Expr, dtype: str) -> Expr:
    """``x`` clipped to the range of ``dtype`` ("int8" or "int32")."""
    return _call("sat", dtype, x)
