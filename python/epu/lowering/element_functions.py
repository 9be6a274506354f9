"""Neg, Abs, Max, Min, LeakyRelu, PRelu, HardSwish; quotients, roots, powers and logarithms of fixed-point tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.constants import fixed_constant, multiplier
from epu.elementary import RECIPROCAL_SEED, ROOT_SEED
from epu.graph import Graph, Node
from epu.lowering.functions import build_staged
from epu.lowering.lowered import Lowered, operand, result
from epu.lowering.pointwise import build, lower_divide, lower_square, shifted_constant
from epu.lowering.split import staged_kernel
from epu.operators.binary import ROOT, SQUARE, constant_inverse, exponent, power_shifts
from epu.operators.element_functions import (
    GATE_FRAC,
    GATE_OFFSET,
    LN_2,
    LN_2_BITS,
    MANTISSA_BITS,
    alpha,
    gate_shift,
    log_polynomials,
)
from epu.operators.row import frac
from epu.smooth import DEGREE, PLACE_BITS


def lower_sign(node: Node, graph: Graph, rounding: str) -> Lowered:
    """Neg and Abs."""
    from epu.tir_schedules.intrinsics import sat
    from epu.tir_schedules.rowwise import i64
    from epu.tir_schedules.tvm_api import tir

    def body(v: dict[str, Any]) -> Any:
        negative = i64(0) - i64(v["A"])
        return sat(tir.max(negative, i64(v["A"])) if node.op == "Abs" else negative, "int32")

    return build(node, graph, node.op, {"A": operand(node, graph, 0)}, body, {})


def lower_extreme(node: Node, graph: Graph, rounding: str) -> Lowered:
    """Max and Min; constants are brought to the output's format at compile time."""
    from epu.tir_schedules.intrinsics import rshr, sat
    from epu.tir_schedules.tvm_api import tir

    out = frac(result(node, graph))
    tensors = {"A": operand(node, graph, 0), "B": operand(node, graph, 1)}
    scalars = {f"s{name}": frac(each) - out for name, each in tensors.items() if each.data is None}
    choose = tir.max if node.op == "Max" else tir.min

    def body(v: dict[str, Any]) -> Any:
        a, b = (rshr(v[n], v[f"s{n}"]) if f"s{n}" in scalars else v[n].astype("int64") for n in "AB")
        return sat(choose(a, b), "int32")

    lowered = build(node, graph, f"{node.op}_{'_'.join(scalars)}", tensors, body, scalars)
    for name, each in tensors.items():
        if each.data is not None:
            lowered.constants[name] = shifted_constant(node, each, frac(each) - out)
    return lowered


def lower_leaky_relu(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.intrinsics import mulr, sat
    from epu.tir_schedules.rowwise import i64
    from epu.tir_schedules.tvm_api import tir

    operands = {"A": operand(node, graph, 0)}
    if node.op == "PRelu":
        operands["S"] = operand(node, graph, 1)
        scalars = {"shift": frac(operands["S"])}
    else:
        scalars = dict(zip(("S", "shift"), multiplier(alpha(node))))

    def body(v: dict[str, Any]) -> Any:
        scaled = sat(mulr(v["A"], v["S"], v["shift"]), "int32")
        return tir.Select(i64(v["A"]) < i64(0), scaled, v["A"])

    return build(node, graph, node.op, operands, body, scalars)


def lower_hard_swish(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.intrinsics import mulr, sat
    from epu.tir_schedules.rowwise import i64
    from epu.tir_schedules.tvm_api import tir

    x = operand(node, graph, 0)
    scalars = dict(zip(("slope", "shift"), gate_shift(node, graph)))
    scalars |= {"offset": fixed_constant(GATE_OFFSET, GATE_FRAC), "one": 1 << GATE_FRAC}
    scalars["out_shift"] = frac(x) + GATE_FRAC - frac(result(node, graph))

    def program(p: Any) -> None:
        def gated(*at: Any) -> Any:
            line = mulr(p["X"](*at), p["slope"], p["shift"]) + p["offset"]
            return tir.min(tir.max(line, i64(0)), p["one"]).astype("int32")

        gate = p.stage("gate", gated)
        p.stage("Y", lambda *at: sat(mulr(p["X"](*at), gate(*at), p["out_shift"]), "int32"))

    return build_staged(node, graph, "hard_swish", {"X": x}, program, scalars)


def inverse_stages(p: Any, b: Any) -> tuple[Any, Any]:
    """Stages: bits L of a value's magnitude (at least 1), and the reciprocal of it shifted to 32 bits, with its sign."""
    from epu.tir_schedules.intrinsics import clz
    from epu.tir_schedules.rowwise import i64, reciprocal
    from epu.tir_schedules.tvm_api import tir

    size = p.stage("size", lambda *at: tir.max(tir.max(i64(b(*at)), i64(0) - i64(b(*at))), i64(1)))
    length = p.stage("bits", lambda *at: (i64(64) - clz(size(*at))).astype("uint8"))
    leading = p.stage("leading", lambda *at: size(*at) << (i64(32) - i64(length(*at))))
    r = reciprocal(p.stage, leading, RECIPROCAL_SEED)
    signed = lambda *at: tir.Select(i64(b(*at)) < i64(0), i64(0) - i64(r(*at)), i64(r(*at))).astype("int32")  # noqa: E731
    return length, p.stage("inverse", signed)


def lower_quotient(node: Node, graph: Graph, rounding: str) -> Lowered:
    """Div: by a constant, a product with its inverse; by a tensor, with the reciprocal of each element."""
    from epu.tir_schedules.intrinsics import mulr, sat
    from epu.tir_schedules.rowwise import i64

    a, b, y = operand(node, graph, 0), operand(node, graph, 1), result(node, graph)
    if b.data is not None:
        return (lower_divide if b.data.size == 1 else lower_constant_quotient)(node, graph, rounding)

    def program(p: Any) -> None:
        length, inverse = inverse_stages(p, p["B"])
        p.stage("Y", lambda *at: sat(mulr(p["A"](*at), inverse(*at), i64(length(*at)) + p["shift"]), "int32"))

    scalars = {"shift": 30 + frac(a) - frac(b) - frac(y)}
    return build_staged(node, graph, "quotient", {"A": a, "B": b}, program, scalars)


def lower_constant_quotient(node: Node, graph: Graph, rounding: str) -> Lowered:
    """By a constant tensor: a product with the inverse of each entry."""
    from epu.tir_schedules.intrinsics import mulr, sat
    from epu.tir_schedules.rowwise import i64

    a, b, y = operand(node, graph, 0), operand(node, graph, 1), result(node, graph)
    factor, power = constant_inverse(np.asarray(b.data, np.int64))
    inverse: dict[str, NDArray[Any]] = {"factor": factor, "power": power.astype(np.int32)}
    described = {"A": ("input", a.shape, "int32")}
    described |= {name: ("constant", array.shape, str(array.dtype)) for name, array in inverse.items()}

    def program(p: Any) -> None:
        def quotient(*at: Any) -> Any:
            return sat(mulr(p["A"](*at), p["factor"](*at), i64(p["power"](*at)) + p["shift"]), "int32")

        p.stage("Y", quotient)

    kernel, splits = staged_kernel("constant_quotient", y.shape, described, program, ("shift",))
    scalars = {"shift": frac(a) - frac(b) - frac(y)}
    return Lowered(node, kernel, {"A": a.name}, {"Y": y.name}, inverse, scalars, splits=splits)


def lower_reciprocal(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.intrinsics import rshr, sat
    from epu.tir_schedules.rowwise import i64

    x, y = operand(node, graph, 0), result(node, graph)

    def program(p: Any) -> None:
        length, inverse = inverse_stages(p, p["X"])
        p.stage("Y", lambda *at: sat(rshr(inverse(*at), i64(length(*at)) + p["shift"]), "int32"))

    return build_staged(node, graph, "reciprocal", {"X": x}, program, {"shift": 30 - frac(x) - frac(y)})


def lower_sqrt(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.folds import square_root
    from epu.tir_schedules.rowwise import i64
    from epu.tir_schedules.tvm_api import tir

    x, y = operand(node, graph, 0), result(node, graph)
    odd = frac(x) % 2

    def program(p: Any) -> None:
        square = p.stage("square", lambda *at: tir.max(i64(p["X"](*at)), i64(0)) << p["odd"])
        square_root(p.stage, square, p["root_shift"], ROOT_SEED, "Y")

    scalars = {"odd": odd, "root_shift": 30 + (frac(x) + odd) // 2 - frac(y)}
    return build_staged(node, graph, "sqrt", {"X": x}, program, scalars)


def lower_power(node: Node, graph: Graph, rounding: str) -> Lowered:
    """Exponents 1/2, 2, 3 and 4."""
    from epu.tir_schedules.intrinsics import mulr, sat

    power = exponent(node, graph)
    if power in (ROOT, SQUARE):
        return (lower_sqrt if power == ROOT else lower_square)(node, graph, rounding)
    shifts = power_shifts(node, graph)
    scalars = {f"shift{index}": shift for index, shift in enumerate(shifts)}

    def program(p: Any) -> None:
        product = p["X"]
        for index in range(len(shifts)):
            name = f"power{index + 2}" if index + 1 < len(shifts) else "Y"
            product = p.stage(name, _times(p, product, f"shift{index}", mulr, sat))

    return build_staged(node, graph, f"power_{power}", {"X": operand(node, graph, 0)}, program, scalars)


def _times(p: Any, product: Any, shift: str, mulr: Any, sat: Any) -> Any:
    return lambda *at: sat(mulr(product(*at), p["X"](*at), p[shift]), "int32")


def lower_log(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.intrinsics import clz, mulr, rshr, sat
    from epu.tir_schedules.rowwise import i64
    from epu.tir_schedules.smooth import polynomial
    from epu.tir_schedules.tvm_api import tir

    x, y, table = operand(node, graph, 0), result(node, graph), log_polynomials()
    scalars = {"low": table.low, "high": table.high, "factor": table.factor, "shift": table.shift}
    scalars |= {"out_shift": table.frac - frac(y), "frac": frac(x), "ln_2": LN_2, "ln_2_shift": LN_2_BITS - frac(y)}

    def program(p: Any) -> None:
        safe = p.stage("safe", lambda *at: tir.max(p["X"](*at), tir.const(1, "int32")))
        length = p.stage("bits", lambda *at: (i64(64) - clz(i64(safe(*at)))).astype("uint8"))
        mantissa = p.stage(
            "mantissa", lambda *at: (i64(safe(*at)) << (i64(MANTISSA_BITS) - i64(length(*at)))).astype("int32")
        )
        part = polynomial(p, mantissa, PLACE_BITS, DEGREE)
        whole = p.stage("whole", lambda *at: mulr(i64(length(*at)) - p["frac"], p["ln_2"], p["ln_2_shift"]))
        p.stage("Y", lambda *at: sat(rshr(part(*at), p["out_shift"]) + whole(*at), "int32"))

    tables = {f"C{k}": each for k, each in enumerate(table.tables)}
    return build_staged(node, graph, "log", {"X": x}, program, scalars, tables)


LOWERINGS = {
    "Neg": lower_sign,
    "Abs": lower_sign,
    "Max": lower_extreme,
    "Min": lower_extreme,
    "LeakyRelu": lower_leaky_relu,
    "PRelu": lower_leaky_relu,
    "HardSwish": lower_hard_swish,
    "Div": lower_quotient,
    "Reciprocal": lower_reciprocal,
    "Sqrt": lower_sqrt,
    "Pow": lower_power,
    "Log": lower_log,
}
