"""Equal, Less, Greater and their kin, And, Or, Not, Where: masks are int32 of 0 and 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from epu.graph import Fixed, Graph, Integer, Node, Tensor
from epu.lanes import rshr, saturate
from epu.operators.row import (
    FINER_OUTPUT,
    FIXED,
    MASK,
    Array,
    Interval,
    Limit,
    Operator,
    Values,
    found_type,
    frac,
    interval,
    output_tensor,
    required,
    value,
)

MOST_ALIGNMENT = 31  # bits by which one operand of a comparison is shifted left in 64
BOOL = "bool"

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}
LOGIC: dict[str, Callable[..., Any]] = {
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Not": np.logical_not,
}


def alignment(node: Node, graph: Graph) -> tuple[int, int]:
    """Left shifts that give both operands of a comparison the same fraction bits."""
    a, b = (frac(required(node, graph, index)) for index in (0, 1))
    return max(b - a, 0), max(a - b, 0)


def compare_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    a, b = (value(node, values, index) << shift for index, shift in enumerate(alignment(node, graph)))
    return [np.asarray(COMPARISONS[node.op](a, b)).astype(np.int32)]


def logic_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    operands = [value(node, values, index) != 0 for index in range(len(node.inputs))]
    return [np.asarray(LOGIC[node.op](*operands)).astype(np.int32)]


def where_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    out = frac(output_tensor(node, graph))
    a, b = (saturate(rshr(value(node, values, i), frac(required(node, graph, i)) - out), "int32") for i in (1, 2))
    return [np.where(value(node, values, 0) != 0, a, b)]


def cast_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    """A mask as 0 and 1 in the output's format, or the mask of what is not 0."""
    raw, out = value(node, values, 0), output_tensor(node, graph)
    if is_mask(out):
        return [(raw != 0).astype(np.int32)]
    return [saturate(rshr((raw != 0).astype(np.int64), -frac(out)), "int32")]


def cast_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return {} if is_mask(output_tensor(node, graph)) else {node.outputs[0]: (0.0, 1.0)}


def check_cast(node: Node, graph: Graph) -> str | None:
    kinds = [required(node, graph, 0), output_tensor(node, graph)]
    fits = is_mask(kinds[0]) != is_mask(kinds[1]) and all(is_mask(each) or is_real(each) for each in kinds)
    return None if fits else " to ".join(map(found_type, kinds))


def where_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    (a, b), (c, d) = (interval(required(node, graph, index)) for index in (1, 2))
    return {node.outputs[0]: (min(a, c), max(b, d))}


def is_mask(tensor: Tensor) -> bool:
    return isinstance(tensor.type, Integer) and tensor.type.dtype == BOOL


def check_operands(node: Node, graph: Graph) -> str | None:
    wrong = [graph.tensors[name] for name in node.inputs if not is_real(graph.tensors[name])]
    return found_type(wrong[0]) if wrong else None


def is_real(tensor: Tensor) -> bool:
    return not hasattr(tensor.type, "dtype")


def check_alignment(node: Node, graph: Graph) -> str | None:
    kinds = [required(node, graph, index).type for index in (0, 1)]
    bits = [kind.frac for kind in kinds if isinstance(kind, Fixed)]
    return None if len(bits) < 2 or abs(bits[0] - bits[1]) <= MOST_ALIGNMENT else str(bits)


def check_masks(node: Node, graph: Graph) -> str | None:
    names = node.inputs[:1] if node.op == "Where" else node.inputs
    wrong = [graph.tensors[name] for name in names if not is_mask(graph.tensors[name])]
    return found_type(wrong[0]) if wrong else None


def check_values(node: Node, graph: Graph) -> str | None:
    wrong = [graph.tensors[name] for name in node.inputs[1:] if not is_real(graph.tensors[name])]
    return found_type(wrong[0]) if wrong else None


MASKS = Limit("conditions are masks of type bool", check_masks, MASK)
COMPARE_LIMITS = (
    Limit("operands of a comparison are float", check_operands, FIXED),
    Limit("their fraction bits differ by at most 31", check_alignment),
)
ROWS = (
    *(Operator(name, "elementwise", COMPARE_LIMITS, compare_reference) for name in COMPARISONS),
    *(Operator(name, "elementwise", (MASKS,), logic_reference) for name in LOGIC),
    Operator(
        name="Cast",
        family="elementwise",
        limits=(Limit("a mask becomes float, or a float a mask", check_cast, (*FIXED, *MASK)),),
        reference=cast_reference,
        intervals=cast_intervals,
    ),
    Operator(
        name="Where",
        family="elementwise",
        limits=(Limit("what is chosen is float", check_values, FIXED), MASKS, FINER_OUTPUT),
        reference=where_reference,
        intervals=where_intervals,
    ),
)
