"""Linear Resize by moves and one weighted sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from epu.graph import Graph, Integer, Node, Tensor
from epu.operators.resize import WEIGHT_BITS, Sampled, neighbours, samples


def expand_linear_resize(graph: Graph) -> Graph:
    """``Resize`` of mode linear becomes one Resize by positions for each combination of neighbours, and a Blend of them."""
    tensors, nodes = dict(graph.tensors), []
    for node in graph.nodes:
        axes = samples(node, graph) if node.op == "Resize" and node.attrs.get("mode") == "linear" else []
        nodes += expanded(node, axes, tensors) if axes else [node]
    return replace(graph, nodes=nodes, tensors=tensors)


def expanded(node: Node, axes: list[Sampled], tensors: dict[str, Tensor]) -> list[Node]:
    out, made, weights = tensors[node.outputs[0]], [], []
    for index, each in enumerate(neighbours(axes, len(out.shape))):
        name, data = f"{node.name}:neighbour_{index}", each.weights.astype(np.int32)
        tensors[name] = replace(out, name=name)
        made.append(Node(name, "Resize", [node.inputs[0]], [name], {"mode": "nearest", "positions": each.positions}))
        weights.append(Tensor(f"{node.name}:weights_{index}", data.shape, Integer("int32"), data))
    tensors.update({each.name: each for each in weights})
    names = [*(each.name for each in made), *(each.name for each in weights)]
    return [*made, replace(node, op="Blend", inputs=names, attrs={"shift": WEIGHT_BITS})]
