"""Find layer normalisation in its nine decomposed nodes."""

from __future__ import annotations

from typing import Any

from epu.graph import Graph, Node
from epu.operators.layer_norm import ROLES
from epu.passes.rewrite import constant_beside, covers_of, is_inside, only_reader, replace_group
from epu.passes.split_layer_norm import row_is_long

SQUARE = 2.0


def recognise_layer_norm(graph: Graph) -> Graph:
    """``m = ReduceMean(x); d = x - m; s = Sqrt(ReduceMean(d*d) + epsilon); (d / s) * gamma + beta`` over the last axis
    becomes one LayerNormDecomposed(x, gamma, beta) that covers the nine nodes. Where the rows are long they stay."""
    for node in graph.nodes:
        group = layer_norm_group(graph, node) if node.op == "ReduceMean" else None
        if group is not None:
            graph = replace_group(graph, group, layer_norm_node(graph, group))
    return graph


def layer_norm_group(graph: Graph, mean: Node) -> list[Node] | None:
    """The nine nodes that start with this mean, in the order of the roles; None where the structure differs."""
    centred = only_reader(graph, mean.outputs[0], "Sub")
    if centred is None or centred.inputs != [mean.inputs[0], mean.outputs[0]]:
        return None
    square = next((node for node in graph.consumers(centred.outputs[0]) if is_square(graph, node)), None)
    tail = chain(graph, square, ("ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"))
    if square is None or tail is None:
        return None
    group = [mean, centred, square, *tail]
    short = not row_is_long(graph.tensors[mean.inputs[0]].shape[-1])
    return group if short and is_layer_norm(graph, group) else None


def chain(graph: Graph, start: Node | None, ops: tuple[str, ...]) -> list[Node] | None:
    """The nodes of these ops, each the only reader of the one before."""
    found: list[Node] = []
    for op in ops:
        start = only_reader(graph, start.outputs[0], op) if start is not None else None
        if start is None:
            return None
        found.append(start)
    return found


def is_square(graph: Graph, node: Node) -> bool:
    if node.op == "Mul":
        return node.inputs[0] == node.inputs[1]
    return node.op == "Pow" and scalar(graph, node.inputs[1]) == SQUARE


def scalar(graph: Graph, name: str | None) -> float | None:
    """The one real of a constant; None for anything else."""
    data = graph.tensors[name].data if name else None
    return float(data.reshape(-1)[0]) if data is not None and data.size == 1 else None


def is_layer_norm(graph: Graph, group: list[Node]) -> bool:
    mean, centred, square, variance, epsilon, root, quotient, scaled, shifted = group
    constants = (
        scalar(graph, constant_beside(graph, epsilon, variance.outputs[0])),
        constant_beside(graph, scaled, quotient.outputs[0]),
        constant_beside(graph, shifted, scaled.outputs[0]),
    )
    return (
        None not in constants
        and quotient.inputs == [centred.outputs[0], root.outputs[0]]
        and is_inside(graph, centred.outputs[0], [square, quotient])
        and all(is_row_mean(graph, node) for node in (mean, variance))
        and graph.tensors[shifted.outputs[0]].shape == graph.tensors[mean.inputs[0]].shape
    )


def is_row_mean(graph: Graph, node: Node) -> bool:
    """Over the last axis, which stays as 1."""
    rank = len(graph.tensors[node.inputs[0]].shape)
    axes = [axis % rank for axis in node.attrs.get("axes") or ()]
    return axes == [rank - 1] and bool(node.attrs.get("keepdims", 1))


def layer_norm_node(graph: Graph, group: list[Node]) -> Node:
    mean, _, _, variance, epsilon, _, quotient, scaled, shifted = group
    gamma = constant_beside(graph, scaled, quotient.outputs[0])
    beta = constant_beside(graph, shifted, scaled.outputs[0])
    assert gamma is not None
    assert beta is not None
    attrs: dict[str, Any] = {role: node.outputs[0] for role, node in zip(ROLES, group)}
    attrs["epsilon"] = scalar(graph, constant_beside(graph, epsilon, variance.outputs[0]))
    inputs = [mean.inputs[0], gamma, beta]
    return Node(shifted.name, "LayerNormDecomposed", inputs, list(shifted.outputs), attrs, covers_of(group))
