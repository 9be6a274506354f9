"""Remove what has no elements."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from epu.graph import Graph, Node

CONCATS = ("Concat", "QLinearConcat")


def drop_empty(graph: Graph) -> Graph:
    """``empty -> concat`` loses that input; nodes that make empty tensors alone go. An empty graph output stays."""
    nodes = [without_empty_inputs(node, graph) if node.op in CONCATS else node for node in graph.nodes]
    return replace(graph, nodes=[node for node in nodes if not makes_nothing(node, graph)])


def without_empty_inputs(node: Node, graph: Graph) -> Node:
    return replace(node, inputs=[name for name in node.inputs if not is_empty(graph, name)])


def makes_nothing(node: Node, graph: Graph) -> bool:
    return all(is_empty(graph, name) and name not in graph.outputs for name in node.outputs)


def is_empty(graph: Graph, name: str) -> bool:
    return prod(graph.tensors[name].shape) == 0
