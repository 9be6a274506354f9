"""Drop Identity and Dropout."""

from __future__ import annotations

from dataclasses import replace

from epu.graph import Graph, Node

IDENTITIES = ("Identity", "Dropout")


def remove_identities(graph: Graph) -> Graph:
    """``x -> Identity -> y -> reader`` becomes ``x -> reader``. An identity that makes a graph output stays."""
    source: dict[str, str] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        inputs = [source.get(name, name) for name in node.inputs]
        if node.op in IDENTITIES and node.outputs[0] not in graph.outputs:
            source[node.outputs[0]] = inputs[0]
        else:
            nodes.append(replace(node, inputs=inputs))
    return replace(graph, nodes=nodes)
