"""Custom operators that are compositions become their nodes."""

from __future__ import annotations

from dataclasses import replace

from epu.custom_compose import Composer
from epu.custom_ops import call_of, definition
from epu.graph import Graph, Node, Quantized, Tensor
from epu.operators.custom import ROW


def compose_custom_ops(graph: Graph) -> Graph:
    """QuadricCustomOp with ``compose`` → the nodes that it adds, also where those hold further compositions."""
    while any(is_composition(node) for node in graph.nodes):
        graph = composed_once(graph)
    return graph


def is_composition(node: Node) -> bool:
    return node.op == ROW and definition(node).compose is not None


def composed_once(graph: Graph) -> Graph:
    tensors = dict(graph.tensors)
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += composition(node, graph, tensors) if is_composition(node) else [node]
    return replace(graph, nodes=nodes, tensors=tensors)


def composition(node: Node, graph: Graph, tensors: dict[str, Tensor]) -> list[Node]:
    """The nodes in place of ``node``; adds their tensors. The last one makes the node's output."""
    call, op = call_of(node, graph), definition(node)
    assert op.compose is not None
    build = Composer(call, node.attrs["tensors"])
    result = call.ask("compose", op.compose, build, call)
    made = {output for each in build.nodes for output in each.outputs}
    if result not in made:
        raise call.refuse("compose must return the name of a tensor that it added", repr(result), "Return the last one")
    _check(node, graph, build.tensors[result], call.result)
    for name, tensor in build.tensors.items():
        if name in tensors and name in made:
            raise call.refuse("a composition's tensors must be new to the model", repr(name), "Rename one")
        if name != result:
            tensors.setdefault(name, tensor)
    rename = {result: node.outputs[0]}
    return [
        replace(
            each,
            inputs=[rename.get(name, name) for name in each.inputs],
            outputs=[rename.get(name, name) for name in each.outputs],
        )
        for each in build.nodes
    ]


def _check(node: Node, graph: Graph, found: Tensor, wanted: Tensor) -> None:
    call = call_of(node, graph)
    if found.shape != tuple(wanted.shape):
        raise call.refuse(f"compose must make the shape {wanted.shape}", found.shape, "Correct it, or types")
    alike = found.type == wanted.type if isinstance(wanted.type, Quantized) else type(found.type) is type(wanted.type)
    if not alike:
        raise call.refuse(f"compose must make {wanted.type}", found.type, "Quantise it alike, or correct types")
