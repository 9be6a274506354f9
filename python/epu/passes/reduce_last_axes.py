"""Bring reduced axes to the end."""

from __future__ import annotations

from dataclasses import replace

from epu.graph import Graph, Node
from epu.operators.reduce_mean import reduced_axes

REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ArgMax", "ArgMin")


def reduce_last_axes(graph: Graph) -> Graph:
    """``x -> reduce some axes`` becomes ``x -> Transpose -> reduce the last axes`` where other axes follow them."""
    tensors, nodes = dict(graph.tensors), []
    for node in graph.nodes:
        order = last_axes_order(node, graph) if node.op in REDUCTIONS else None
        if order is not None:
            x = tensors[node.inputs[0]]
            name, count = f"{node.name}:transposed", len(reduced_axes(node, graph))
            tensors[name] = replace(x, name=name, shape=tuple(x.shape[axis] for axis in order), data=None)
            nodes.append(Node(name, "Transpose", [x.name], [name], {"perm": order}))
            axes = tuple(range(len(order) - count, len(order)))
            node = replace(node, inputs=[name], attrs={**node.attrs, "axes": axes})
        nodes.append(node)
    return replace(graph, nodes=nodes, tensors=tensors)


def last_axes_order(node: Node, graph: Graph) -> tuple[int, ...] | None:
    """The axes with the reduced ones last; None where they are."""
    rank, axes = len(graph.tensors[node.inputs[0]].shape), reduced_axes(node, graph)
    order = (*(axis for axis in range(rank) if axis not in axes), *axes)
    return None if order == tuple(range(rank)) else order
