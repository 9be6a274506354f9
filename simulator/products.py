"""Rounding products (mulr, mulrf, rshr) in float64: one multiply and one rint where that is provably exact.

``a * multiplier * 2**-shift`` is exact in float64 while ``|a * multiplier| < 2**53``. Each run checks the largest product it
made: a float64 product reaches 2**53 if and only if the exact one does, because rounding is monotone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from epu.simulator import fixed_point as fp
from epu.simulator.memory import Memories
from epu.simulator.operands import Imm, Lrm, Source

HEADROOM = float(1 << 52)  # a rounded product below this and a 32-bit addend stay within 53 bits

Sources = Sequence[Source | None]


def within_32_bits(source: Source | None) -> bool:
    """Whether every value of the operand fits int32."""
    if isinstance(source, Imm):
        low, high = fp.RANGE["i32"]
        return low <= source.value <= high
    return source is None or source.dtype != "i64"


def may_hold(op: str, sources: Sources) -> bool:
    """Whether multiplier, shift and addend are narrow enough to try float64."""
    multiplier, shift, addend = product_operands(op, sources)
    if isinstance(multiplier, Imm) and abs(multiplier.value) < 1 << 33:
        multiplier = Imm(0)
    return all(within_32_bits(each) for each in (multiplier, shift, addend))


def product_operands(op: str, sources: Sources) -> tuple[Source | None, Source | None, Source | None]:
    """(multiplier, shift, addend); a rounding shift multiplies by 1."""
    if op == "rshr":
        return Imm(1), sources[1], None
    return sources[1], sources[2], sources[3]


class FloatProduct:
    """One rounding product with what is known of it before it runs."""

    def __init__(self, op: str, dst: Lrm, sources: Sources, saturate: bool) -> None:
        self.op, self.dtype, self.saturate = op, dst.dtype, saturate
        self.multiplier, self.shift, self.addend = product_operands(op, sources)
        self.room = self._room()

    def _room(self) -> float:
        """Magnitude of the rounded product below which the write needs no wrap-around; 0 where none is sure."""
        if self.saturate or self.dtype == "i64":
            return HEADROOM
        if isinstance(self.addend, Imm):
            largest = abs(self.addend.value)
        else:
            largest = -fp.RANGE[self.addend.dtype][0] or 255 if self.addend else 0
        room = fp.RANGE[self.dtype][1] - largest
        return float(room) if room > 0 and self.dtype != "u8" else 0.0

    def bind(self, block: Sequence[Any], memories: Memories) -> Callable[[], bool]:
        """A function that does the block, or reports False where float64 cannot hold it."""
        out, a, b, c, d = block
        b, c, d = (np.array(1), b, None) if self.op == "rshr" else (b, c, d)
        product = memories.scratch(0, np.float64, out.shape)
        single = memories.scratch(1, np.float32, out.shape)
        constant = self._factor(b, c) if b.ndim == c.ndim == 0 else None

        def run() -> bool:
            factor, limit = constant or self._factor(b, c)
            if not self._multiply(product, single, a, factor, min(limit, self.room or HEADROOM)):
                return False
            if d is not None:
                np.add(product, d, out=product)
            fp.narrow_float(out, product, self.dtype, self.saturate, surely_fits=self.room > 0)
            return True

        return run

    def _factor(self, b: Any, c: Any) -> tuple[Any, float]:
        """(multiplier * 2**-shift, magnitude below which the shifted product is exact)."""
        amount = np.clip(c, -63, 63)
        factor = np.ldexp(np.asarray(b, np.float64), -amount)
        bits = 62 if self.op == "mulrf" else 53
        limit = 2.0 ** (bits - int(amount.max()))
        if self.op == "mulrf" and np.abs(b).max() > fp.EXACT_FLOAT32:
            limit = 0.0
        return factor, min(HEADROOM, limit)

    def _multiply(self, product: Any, single: Any, a: Any, factor: Any, limit: float) -> bool:
        if self.op == "mulrf":
            return fp.rounded_float_product(product, single, a, factor.astype(np.float32), limit)
        return fp.exact_float_product(product, a, factor, limit)
