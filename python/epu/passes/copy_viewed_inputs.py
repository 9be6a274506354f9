"""Give a graph output that only shows a graph input or a constant bytes of its own."""

from __future__ import annotations

from dataclasses import replace

from epu.graph import Graph, Node

VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")


def copy_viewed_inputs(graph: Graph) -> Graph:
    """``input -> view -> output`` becomes ``input -> Expand (to its own shape) -> view -> output``: an output needs a kernel
    that computes it, and views have none."""
    makers = {node.outputs[0]: node for node in graph.nodes if node.op in VIEWS}
    made = {name for node in graph.nodes for name in node.outputs}
    first = {id(node): node for name in graph.outputs if (node := _first_view(name, makers, made))}
    if not first:
        return graph
    nodes, tensors = [], dict(graph.tensors)
    for node in graph.nodes:
        if id(node) in first:
            source = graph.tensors[node.inputs[0]]
            copy = replace(source, name=f"{node.name}:copy", data=None)
            tensors[copy.name] = copy
            nodes.append(Node(copy.name, "Expand", [source.name], [copy.name]))
            node = replace(node, inputs=[copy.name, *node.inputs[1:]])
        nodes.append(node)
    return replace(graph, nodes=nodes, tensors=tensors)


def _first_view(name: str, makers: dict[str, Node], made: set[str]) -> Node | None:
    """The first of the views that end in ``name``, where no kernel makes what it reads."""
    node = None
    while name in makers:
        node = makers[name]
        name = node.inputs[0]
    return node if name not in made else None
