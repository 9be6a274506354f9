"""int8 multiply-accumulates of a graph, counted by the operator rows."""

from __future__ import annotations

from epu.graph import Graph, Node
from epu.operators import OPERATORS

RULE = "=" * 60
THIN_RULE = "-" * 60
KIND = {"convolution": "conv2d", "matmul": "matmul"}  # of a row's family


def count_macs(graph: Graph) -> list[tuple[Node, int]]:
    """Every node that multiplies and accumulates, with its count."""
    counted = ((node, OPERATORS[node.op].macs(node, graph)) for node in graph.nodes if node.op in OPERATORS)
    return [(node, macs) for node, macs in counted if macs]


def total_macs(graph: Graph) -> int:
    return sum(macs for _, macs in count_macs(graph))


def mac_summary(graph: Graph) -> list[str]:
    """The lines of the log."""
    lines = [f"{KIND[OPERATORS[node.op].family]}: {amount(macs)} - {node.name}" for node, macs in count_macs(graph)]
    head = ["", RULE, "MAC Operation Count Summary", RULE]
    return [*head, *lines, THIN_RULE, f"Total: {amount(total_macs(graph))}", RULE, ""]


def amount(macs: int) -> str:
    return f"{2 * macs:,} ops ({macs:,} MACs)"
