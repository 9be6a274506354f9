"""Find softmax of an int8 tensor, whose exponentials fit a table of 256."""

from __future__ import annotations

from epu.graph import Graph, Node
from epu.passes.rewrite import covers_of, is_inside, is_per_tensor_byte, replace_group
from epu.passes.split_softmax import CODES_IN_A_PE, too_long


def recognise_softmax(graph: Graph) -> Graph:
    """``q -> DequantizeLinear -> Softmax (last axis) -> QuantizeLinear`` becomes SoftmaxInt8(q) that covers the three.

    A dequantised tensor that others read keeps its node; probabilities that others read are a further output; without
    a QuantizeLinear they are the only one.
    """
    for node in graph.nodes:
        source = int8_source(graph, node)
        if source is not None:
            group = softmax_group(graph, source, node)
            graph = replace_group(graph, group, softmax_node(graph, source, node, group))
    return graph


def int8_source(graph: Graph, node: Node) -> Node | None:
    """The DequantizeLinear of a per-tensor int8 tensor that feeds a softmax along the last axis."""
    if node.op != "Softmax" or not is_last_axis(graph, node) or is_long(graph, node):
        return None
    source = graph.producer(node.inputs[0])
    if source is None or source.op != "DequantizeLinear" or not is_per_tensor_byte(graph, source.inputs[0]):
        return None
    return source


def is_last_axis(graph: Graph, node: Node) -> bool:
    rank = len(graph.tensors[node.inputs[0]].shape)
    return bool(node.attrs.get("axis", -1) % rank == rank - 1)


def is_long(graph: Graph, node: Node) -> bool:
    """Such a row becomes several nodes (split_softmax)."""
    return too_long(graph.tensors[node.inputs[0]].shape[-1], CODES_IN_A_PE)


def softmax_group(graph: Graph, source: Node, softmax: Node) -> list[Node]:
    """Softmax with the DequantizeLinear that only it reads and the one QuantizeLinear that reads it."""
    before = [source] if is_inside(graph, source.outputs[0], [softmax]) else []
    readers = [node for node in graph.consumers(softmax.outputs[0]) if node.op == "QuantizeLinear"]
    after = readers if len(readers) == 1 and is_per_tensor_byte(graph, readers[0].outputs[0]) else []
    return [*before, softmax, *after]


def softmax_node(graph: Graph, source: Node, softmax: Node, group: list[Node]) -> Node:
    probabilities = softmax.outputs[0]
    outputs = list(group[-1].outputs)
    if group[-1] is not softmax and not is_inside(graph, probabilities, group):
        outputs.append(probabilities)
    attrs = {
        "axis": -1,
        "probabilities": probabilities,
        "dequantized": source.outputs[0] if group[0] is source else "",
    }
    return Node(softmax.name, "SoftmaxInt8", [source.inputs[0]], outputs, attrs, covers_of(group))
