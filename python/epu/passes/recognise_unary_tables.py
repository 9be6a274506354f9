"""Find int8 -> float -> int8 regions of one variable, which are tables of 256 entries."""

from __future__ import annotations

from typing import Any

from epu.graph import Graph, Node
from epu.passes.rewrite import covers_of, is_inside, is_per_tensor_byte, replace_group
from epu.unary_functions import (
    EXACT_FUNCTIONS,
    exact_codes,
    exact_reals,
    float32_codes,
    float32_reals,
    operand_constants,
)


def recognise_unary_tables(graph: Graph) -> Graph:
    """``q -> DequantizeLinear -> element by element ops with scalar constants -> QuantizeLinear`` becomes
    QuantizedUnary(q) with its tables. Only where nothing outside the region reads its inner tensors."""
    for node in graph.nodes:
        region = unary_region(graph, node) if node.op == "QuantizeLinear" else None
        if region is not None:
            graph = replace_group(graph, region, unary_node(graph, region))
    return graph


def unary_region(graph: Graph, end: Node) -> list[Node] | None:
    """DequantizeLinear first, ``end`` last, in graph order; None where the input of ``end`` is no such function."""
    members = {id(node) for node in walk_back(graph, end)}
    region = [node for node in graph.nodes if id(node) in members]
    starts = [node for node in region if node.op == "DequantizeLinear"]
    if len(starts) != 1 or region[0] is not starts[0]:
        return None
    bytes_only = is_per_tensor_byte(graph, starts[0].inputs[0]) and is_per_tensor_byte(graph, end.outputs[0])
    closed = all(is_inside(graph, node.outputs[0], region) for node in region if node is not end)
    made = {node.outputs[0] for node in region}
    one = all(name in made for node in region[1:] for name in variables_of(graph, node))  # not an input of the graph
    return region if bytes_only and closed and one and all(is_unary(graph, node) for node in region[1:-1]) else None


def variables_of(graph: Graph, node: Node) -> list[str]:
    return [name for name in node.inputs if name and graph.tensors[name].data is None]


def walk_back(graph: Graph, end: Node) -> list[Node]:
    """``end`` and all that it depends on, back to DequantizeLinear nodes and to ops that are no element functions."""
    found, pending = [end], list(end.inputs)
    while pending:
        node = graph.producer(pending.pop())
        if node is None or any(node is each for each in found):
            continue
        found.append(node)
        if node.op in EXACT_FUNCTIONS:
            pending.extend(name for name in node.inputs if name)
    return found


def is_unary(graph: Graph, node: Node) -> bool:
    """An element function whose constants are scalars and whose other inputs have the output's shape."""
    if node.op not in EXACT_FUNCTIONS or operand_constants(graph, node) is None:
        return False
    shape = graph.tensors[node.outputs[0]].shape
    variables = variables_of(graph, node)
    return bool(variables) and all(graph.tensors[name].shape == shape for name in variables)


def unary_node(graph: Graph, region: list[Node]) -> Node:
    start, end = region[0], region[-1]
    exact, rounded = exact_reals(graph, region[:-1]), float32_reals(graph, region[:-1])
    target = graph.tensors[end.outputs[0]].type
    attrs: dict[str, Any] = {
        "table": exact_codes(exact[end.inputs[0]], target),
        "table_ort": float32_codes(rounded[end.inputs[0]], target),
        "inner": {name: [float(each) for each in values] for name, values in exact.items()},
    }
    return Node(end.name, "QuantizedUnary", [start.inputs[0]], list(end.outputs), attrs, covers_of(region))
