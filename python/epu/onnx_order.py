"""The order of a model's nodes: each after those that make what it reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

import onnx

from epu.errors import UserError


def sort_nodes(model: onnx.ModelProto) -> None:
    """Put the nodes in order, in place; those of a file that is in order stay as they are.

    ONNX asks for the order, but not every exporter writes it. Raises UserError where nodes read each other in a circle.
    """
    nodes = list(model.graph.node)
    order = node_order(nodes)
    if order == sorted(order) and len(order) == len(nodes):
        return
    if len(order) < len(nodes):
        stuck = nodes[min(set(range(len(nodes))) - set(order))]
        raise UserError(
            f"ONNX node '{stuck.name or stuck.output[0]}' ({stuck.op_type}): what a node reads must not depend on it, "
            "found a circle of nodes. Repair the model."
        )
    del model.graph.node[:]
    model.graph.node.extend(nodes[index] for index in order)


def node_order(nodes: list[onnx.NodeProto]) -> list[int]:
    """Indices of the nodes that can be put in order, the first of the file first."""
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    read = [{makers[name] for name in _reads(node) if name in makers} for node in nodes]
    readers: dict[int, list[int]] = defaultdict(list)
    for index, sources in enumerate(read):
        for source in sources:
            readers[source].append(index)
    waiting = [len(sources) for sources in read]
    ready, order = [index for index, count in enumerate(waiting) if count == 0], []
    heapify(ready)
    while ready:
        order.append(heappop(ready))
        for reader in readers[order[-1]]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heappush(ready, reader)
    return order


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads, its subgraphs too."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _reads(inner)
