"""QuantizedUnary: a recognised int8 -> float -> int8 region of one variable, as one table of 256 entries."""

from __future__ import annotations

import numpy as np

from epu.constants import fixed_constant, integer_range
from epu.graph import Graph, Node
from epu.operators.row import (
    INT8_OUTPUT,
    ORT,
    PER_TENSOR,
    Array,
    Interval,
    Operator,
    Values,
    frac,
    int8_inputs,
    quantized,
    required,
    value,
)


def table_of(node: Node, rounding: str) -> Array:
    """The 256 output codes, in order of the raw input from its type's minimum."""
    return np.asarray(node.attrs["table_ort" if rounding == ORT else "table"])


def index(node: Node, graph: Graph, values: Values) -> Array:
    low, _ = integer_range(quantized(required(node, graph, 0)).dtype)
    return value(node, values, 0) - low


def unary_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    return [table_of(node, rounding)[index(node, graph, values)]]


def unary_inner(node: Node, graph: Graph, values: Values, rounding: str) -> dict[str, Array]:
    """Covered float tensors: each is a function of the input code, ``attrs["inner"]`` its exact 256 values."""
    codes = index(node, graph, values)
    return {name: inner_table(node, graph, name)[codes] for name in node.attrs["inner"]}


def inner_table(node: Node, graph: Graph, name: str) -> Array:
    """256 raw fixed-point values of a covered tensor."""
    bits = frac(graph.tensors[name])
    raw = [fixed_constant(each, bits) for each in node.attrs["inner"][name]]  # of a logarithm beyond any integer type
    low, high = integer_range("int32")
    return np.array([min(max(each, low), high) for each in raw], np.int32)


def unary_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return {name: (float(min(values)), float(max(values))) for name, values in node.attrs["inner"].items()}


ROWS = (
    Operator(
        name="QuantizedUnary",
        family="table",
        limits=(int8_inputs(0), INT8_OUTPUT, PER_TENSOR),
        reference=unary_reference,
        intervals=unary_intervals,
        inner=unary_inner,
    ),
)
