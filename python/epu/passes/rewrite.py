"""What the recognisers share: who reads a tensor, and one node in the place of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from epu.graph import Graph, Node, Quantized

Cover = tuple[str, str, tuple[str, ...]]


def only_reader(graph: Graph, name: str, op: str) -> Node | None:
    """The one node that reads a tensor, where it is of that op and the tensor is no graph output."""
    readers = graph.consumers(name)
    if len(readers) != 1 or readers[0].op != op or name in graph.outputs:
        return None
    return readers[0]


def is_inside(graph: Graph, name: str, group: Sequence[Node]) -> bool:
    """Whether only the group reads a tensor."""
    return name not in graph.outputs and all(any(r is node for node in group) for r in graph.consumers(name))


def constant_beside(graph: Graph, node: Node, name: str) -> str | None:
    """The other input of a two-input node, where it is constant."""
    others = [each for each in node.inputs if each != name]
    return others[0] if len(others) == 1 and graph.tensors[others[0]].data is not None else None


def is_per_tensor_byte(graph: Graph, name: str) -> bool:
    """int8 or uint8 with one scale."""
    kind = graph.tensors[name].type
    return isinstance(kind, Quantized) and kind.dtype in ("int8", "uint8") and kind.axis is None


def covers_of(group: Sequence[Node]) -> list[Cover]:
    """The ONNX nodes of a group, in order."""
    covered: list[Cover] = []
    for node in group:
        covered.extend(node.covers or [(node.name, node.op, tuple(node.outputs))])
    return covered


def replace_group(graph: Graph, group: Sequence[Node], node: Node) -> Graph:
    """``node`` in the place of the first node of the group, which must have the group's variable inputs."""
    nodes: list[Node] = []
    for each in graph.nodes:
        if each is group[0]:
            nodes.append(node)
        elif not any(each is member for member in group):
            nodes.append(each)
    return replace(graph, nodes=nodes)
