"""Run a typed graph through the operator rows: whole tensors, raw integers. The third opinion beside ONNX Runtime and
the golden kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Graph, Node
from epu.operators import OPERATORS
from epu.operators.row import EXACT

Array = NDArray[Any]


def run_reference(graph: Graph, raw_inputs: Mapping[str, Array], rounding: str = EXACT) -> dict[str, Array]:
    """Raw values of every tensor by name, covered ones included, from the graph inputs' raw values."""
    values = constants(graph)
    values.update({name: np.asarray(raw_inputs[name]) for name in graph.inputs})
    for node in graph.nodes:
        values.update(run_node(node, graph, values, rounding))
    return values


def constants(graph: Graph) -> dict[str, Array]:
    return {name: np.asarray(tensor.data) for name, tensor in graph.tensors.items() if tensor.data is not None}


def run_node(node: Node, graph: Graph, values: Mapping[str, Array], rounding: str = EXACT) -> dict[str, Array]:
    """The outputs of one node and the tensors it covers."""
    row = OPERATORS[node.op]
    found = dict(zip(node.outputs, row.reference(node, graph, values, rounding)))
    if row.inner is not None:
        found.update(row.inner(node, graph, values, rounding))
    return found
