"""Split the softmax of rows that no PE could hold."""

from __future__ import annotations

from dataclasses import replace

from epu.graph import Float, Graph, Node, Tensor

ROW_IN_A_PE, CODES_IN_A_PE = 128, 256  # elements and int8 elements that fit the smallest LRM
COLUMNS = 8  # of the smallest array


def split_softmax(graph: Graph) -> Graph:
    """Softmax of long rows → ReduceMax, SoftmaxExp, SoftmaxBits, SoftmaxFactor, SoftmaxShare, with the same result."""
    found, nodes = replace(graph, tensors=dict(graph.tensors)), list[Node]()
    for node in graph.nodes:
        nodes += parts(node, found) if is_long(node, graph) else [node]
    return replace(found, nodes=nodes)


def is_long(node: Node, graph: Graph) -> bool:
    """Whether the elements of a row that each PE would hold are too many."""
    return node.op == "Softmax" and too_long(graph.tensors[node.inputs[0]].shape[-1], ROW_IN_A_PE)


def too_long(length: int, limit: int) -> bool:
    """Whether a PE would hold more than ``limit`` elements of a row over the array's columns."""
    shared = max(columns for columns in range(1, COLUMNS + 1) if COLUMNS % columns == 0 and length % columns == 0)
    return length // shared > limit


def parts(node: Node, graph: Graph) -> list[Node]:
    """The five nodes; their tensors join the graph."""
    x, y = node.inputs[0], node.outputs[0]
    shape = graph.tensors[x].shape
    for name, of in (
        ("max", (*shape[:-1], 1)),
        ("exp", shape),
        ("bits", (*shape[:-1], 1)),
        ("factor", (*shape[:-1], 1)),
    ):
        graph.tensors[f"{y}:{name}"] = Tensor(f"{y}:{name}", of, Float())
    top, exp, bits, factor = (f"{y}:{name}" for name in ("max", "exp", "bits", "factor"))
    return [
        Node(f"{node.name}:max", "ReduceMax", [x], [top], {"axes": (-1,), "keepdims": 1}),
        Node(f"{node.name}:exp", "SoftmaxExp", [x, top], [exp]),
        Node(f"{node.name}:bits", "SoftmaxBits", [exp], [bits]),
        Node(f"{node.name}:factor", "SoftmaxFactor", [exp], [factor]),
        Node(node.name, "SoftmaxShare", [exp, bits, factor], [y], covers=node.covers),
    ]
