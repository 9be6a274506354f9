"""Split the layer normalisation of rows that no PE could hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from epu.graph import Float, Graph, Node, Tensor
from epu.passes.split_softmax import too_long

ROW_IN_A_PE = 161  # elements that fit the smallest LRM


def split_layer_norm(graph: Graph) -> Graph:
    """LayerNormalization of long rows → LayerNormMean, LayerNormBits, LayerNormRoot, LayerNormScale, with the same result."""
    return split(graph, is_long)


def split_every_layer_norm(graph: Graph) -> Graph:
    """Any LayerNormalization → the four nodes, which can round as float32 does."""
    return split(graph, lambda node, graph: True)


def split(graph: Graph, wanted: Callable[[Node, Graph], bool]) -> Graph:
    found, nodes = replace(graph, tensors=dict(graph.tensors)), list[Node]()
    for node in graph.nodes:
        chosen = node.op == "LayerNormalization" and wanted(node, graph)
        nodes += parts(node, found) if chosen else [node]
    return replace(found, nodes=nodes)


def is_long(node: Node, graph: Graph) -> bool:
    """Whether the elements of a row that each PE would hold are too many."""
    return row_is_long(prod(graph.tensors[node.inputs[0]].shape[first_axis(node, graph) :]))


def row_is_long(length: int) -> bool:
    return too_long(length, ROW_IN_A_PE)


def first_axis(node: Node, graph: Graph) -> int:
    return int(node.attrs.get("axis", -1)) % len(graph.tensors[node.inputs[0]].shape)


def parts(node: Node, graph: Graph) -> list[Node]:
    """The four nodes; their tensors join the graph."""
    x, y = node.inputs[0], node.outputs[0]
    shape, axis = graph.tensors[x].shape, first_axis(node, graph)
    of_row = (*shape[:axis], *(1 for _ in shape[axis:]))
    mean, bits, root = (f"{y}:{name}" for name in ("mean", "bits", "root"))
    graph.tensors.update({name: Tensor(name, of_row, Float()) for name in (mean, bits, root)})
    return [
        Node(f"{node.name}:mean", "LayerNormMean", [x], [mean], dict(node.attrs)),
        Node(f"{node.name}:bits", "LayerNormBits", [x, mean], [bits], dict(node.attrs)),
        Node(f"{node.name}:root", "LayerNormRoot", [x, mean], [root], dict(node.attrs)),
        Node(node.name, "LayerNormScale", [x, mean, bits, root, *node.inputs[1:]], [y], dict(node.attrs), node.covers),
    ]
