"""Comparisons, logic and selection."""

from __future__ import annotations

from typing import Any

import numpy as np

from epu.graph import Graph, Node
from epu.lowering.lowered import Lowered, operand, result
from epu.lowering.pointwise import build
from epu.operators.masks import COMPARISONS, LOGIC, alignment, is_mask
from epu.operators.row import frac


def lower_comparison(node: Node, graph: Graph, rounding: str) -> Lowered:
    scalars = {f"s{name}": shift for name, shift in zip("AB", alignment(node, graph)) if shift}

    def body(v: dict[str, Any]) -> Any:
        a, b = (v[n].astype("int64") << v[f"s{n}"] if f"s{n}" in scalars else v[n].astype("int64") for n in "AB")
        holds = {
            "Equal": lambda: a.equal(b),
            "Less": lambda: a < b,
            "LessOrEqual": lambda: a <= b,
            "Greater": lambda: b < a,
            "GreaterOrEqual": lambda: b <= a,
        }[node.op]()
        return holds.astype("int32")

    operands = {"A": operand(node, graph, 0), "B": operand(node, graph, 1)}
    return build(node, graph, f"{node.op}_{'_'.join(scalars)}", operands, body, scalars)


def lower_logic(node: Node, graph: Graph, rounding: str) -> Lowered:
    operands = {name: operand(node, graph, index) for index, name in enumerate("AB"[: len(node.inputs)])}

    def body(v: dict[str, Any]) -> Any:
        if node.op == "Not":
            return v["A"] ^ 1
        return {"And": v["A"] & v["B"], "Or": v["A"] | v["B"], "Xor": v["A"] ^ v["B"]}[node.op]

    return _with_constant_masks(node, graph, build(node, graph, node.op, operands, body, {}), operands)


def lower_cast(node: Node, graph: Graph, rounding: str) -> Lowered:
    """A mask as numbers, or numbers as a mask."""
    from epu.tir_schedules.intrinsics import rshr, sat

    x, y = operand(node, graph, 0), result(node, graph)
    if is_mask(y):
        return build(node, graph, "to_mask", {"A": x}, lambda v: (v["A"] != 0).astype("int32"), {})
    body = lambda v: sat(rshr(v["A"].astype("int64"), v["shift"]), "int32")  # noqa: E731
    lowered = build(node, graph, "from_mask", {"A": x}, body, {"shift": -frac(y)})
    return _with_constant_masks(node, graph, lowered, {"A": x})


def lower_where(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.intrinsics import rshr, sat
    from epu.tir_schedules.tvm_api import tir

    operands = {name: operand(node, graph, index) for index, name in enumerate("CAB")}
    out = frac(result(node, graph))
    scalars = {f"s{name}": frac(operands[name]) - out for name in "AB"}

    def body(v: dict[str, Any]) -> Any:
        a, b = (sat(rshr(v[name], v[f"s{name}"]), "int32") for name in "AB")
        return tir.Select(v["C"] != 0, a, b)

    return _with_constant_masks(node, graph, build(node, graph, "Where", operands, body, scalars), operands)


def _with_constant_masks(node: Node, graph: Graph, lowered: Lowered, operands: dict[str, Any]) -> Lowered:
    for name, tensor in operands.items():
        if tensor.data is not None and is_mask(tensor):
            lowered.constants[name] = np.asarray(tensor.data).astype(np.int32)
    return lowered


LOWERINGS = {
    **dict.fromkeys(COMPARISONS, lower_comparison),
    **dict.fromkeys(LOGIC, lower_logic),
    "Cast": lower_cast,
    "Where": lower_where,
}
