"""Add and Mul of a QDQ group with float32 after each step, for ``rounding="ort"``."""

from __future__ import annotations

from typing import Any

from epu.graph import Graph, Node, Quantized
from epu.lowering.lowered import Lowered, dtype_of, result
from epu.operators.float32_path import FRACTION, Float32Path


def lower_float32_path(node: Node, graph: Graph, path: Float32Path) -> Lowered:
    """The observed sum or product is the float32 number itself, in units of a power of two."""
    from epu.lowering.pointwise import rounded_sum, wide
    from epu.tir_schedules.intrinsics import mulr, round24, rshr, sat

    dtype, product = dtype_of(result(node, graph)), node.op == "QLinearMul"
    scalars = {"ma": path.factors[0], "mb": path.factors[1], "inverse": path.inverse, "divisor": path.divisor}
    scalars |= {"first": path.first, "second": path.second}
    optional = {"za": path.zeros[0], "zb": path.zeros[1], "ra": -path.lefts[0], "rb": -path.lefts[1]}
    optional |= {"zero": path.zero, "drop": path.drop, "left": -path.left, "right": -path.right}
    scalars |= {name: each for name, each in optional.items() if each}

    def shifted(v: dict[str, Any], x: Any, amount: str) -> Any:
        return rshr(x, v[amount]) if amount in scalars else x

    def real(v: dict[str, Any], side: str) -> Any:
        codes, low = wide(v, side.upper()), "z" + side
        return shifted(v, round24((codes - v[low] if low in scalars else codes) * v["m" + side]), "r" + side)

    def float32(v: dict[str, Any]) -> Any:
        a, b = real(v, "a"), real(v, "b")
        return round24(a * b if product else a + b)

    def code(v: dict[str, Any]) -> Any:
        word = shifted(v, v["seen"], "drop")
        coarse = mulr(word, v["inverse"], v["first"])
        rest = shifted(v, word, "left") - shifted(v, coarse * v["divisor"], "right")
        quotient = round24(rshr(coarse, -FRACTION) + mulr(rest, v["inverse"], v["second"]))
        rounded = rshr(quotient, 2 * FRACTION)
        return sat(rounded + v["zero"] if path.zero else rounded, dtype)

    flags = "".join(name for name in optional if name in scalars)
    name = f"{'mul' if product else 'add'}_float32_{dtype}_{flags}"
    kind = Quantized("int64", (2.0**path.exponent,), (0,))
    return rounded_sum(node, graph, name, float32, code, scalars, kind)
