"""The row of all custom operators: it asks the operator that the node carries (docs/custom_ops.md)."""

from __future__ import annotations

import numpy as np

from epu.custom_ops import CustomCall, call_of, definition
from epu.graph import Graph, Integer, Node, Quantized
from epu.operators.row import (
    CODES,
    FIXED,
    Array,
    Interval,
    Limit,
    Operator,
    Values,
    found_type,
    quantized_interval,
    value,
)

ROW = "QuadricCustomOp"


def check_output_type(node: Node, graph: Graph) -> str | None:
    out = graph.tensors[node.outputs[0]]
    return found_type(out) if isinstance(out.type, Integer) else None


def check_input_types(node: Node, graph: Graph) -> str | None:
    tensors = [graph.tensors[name] for name in node.inputs]
    plain = [each for each in tensors if each.data is None and isinstance(each.type, Integer)]
    return found_type(plain[0]) if plain else None


def reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    """The user's reference on raw integers; its shape and its range are checked."""
    call, op = call_of(node, graph, rounding), definition(node)
    assert op.reference is not None, f"{op.name}: a composition is its nodes"
    inputs = [value(node, values, index) for index in range(len(node.inputs))]
    return [checked(call, np.asarray(call.ask("reference", op.reference, call, inputs)))]


def checked(call: CustomCall, found: Array) -> Array:
    out = call.result
    dtype = np.dtype(out.type.dtype if isinstance(out.type, Quantized) else "int32")
    if tuple(found.shape) != tuple(out.shape):
        raise call.refuse(f"the reference must return the shape {out.shape}", found.shape, "Correct it or types")
    if found.dtype.kind not in "iu":
        raise call.refuse("the reference must return raw integers", found.dtype, "Scale and round them")
    limits = np.iinfo(dtype)
    if found.size and (found.min() < limits.min or found.max() > limits.max):
        raise call.refuse(f"the reference must stay within {dtype}", (found.min(), found.max()), "Saturate the result")
    return found.astype(dtype)


def intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    """Bounds by the operator's ``interval``; an integer output has those of its codes."""
    out, op = graph.tensors[node.outputs[0]], definition(node)
    if isinstance(out.type, Quantized):
        return {out.name: quantized_interval(out.type)}
    if op.interval is None:
        return {out.name: (-np.inf, np.inf)}
    call = call_of(node, graph)
    low, high = call.ask("interval", op.interval, call)
    return {out.name: (float(low), float(high))}


def formats(node: Node, graph: Graph) -> dict[str, int]:
    op = definition(node)
    if op.frac is None or isinstance(graph.tensors[node.outputs[0]].type, Quantized):
        return {}
    call = call_of(node, graph)
    return {node.outputs[0]: int(call.ask("frac", op.frac, call))}


def macs(node: Node, graph: Graph) -> int:
    op = definition(node)
    call = call_of(node, graph)
    return int(call.ask("macs", op.macs, call)) if op.macs is not None else 0


ROWS = (
    Operator(
        name=ROW,
        family="custom",
        limits=(
            Limit("inputs are float or quantised, or constants", check_input_types, CODES + FIXED),
            Limit("the output is float, or quantised by types or by its readers", check_output_type),
        ),
        reference=reference,
        intervals=intervals,
        formats=formats,
        macs=macs,
    ),
)
