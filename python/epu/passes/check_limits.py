"""Refuse what the EPU cannot run."""

from __future__ import annotations

from epu.errors import UnsupportedNode
from epu.graph import Graph, Node
from epu.operators import OPERATORS


def check_limits(graph: Graph) -> Graph:
    """The same graph. Raises UnsupportedNode for the first node without an operator row or outside one of its limits."""
    for node in graph.nodes:
        if node.op not in OPERATORS:
            raise refusal(node, "the operator must be one of docs/supported_ops.md", node.op)
        for limit in OPERATORS[node.op].limits:
            found = limit.check(node, graph)
            if found is not None:
                raise refusal(node, limit.sentence, found)
    return graph


def refusal(node: Node, sentence: str, found: str) -> UnsupportedNode:
    return UnsupportedNode(
        f"ONNX node '{node.name}' ({node.op}): {sentence}, found {found}. "
        f"Change the node, cut it off (epu cut), or build with TVM, where epu.config(exclude=['{node.name}']) "
        "leaves it on the host."
    )
