"""The third input of Gemm as the quantisers and the EPU take it: one value per column."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from epu.onnx_shapes import static_shape, value_types

Array = NDArray[np.float32]


def bias_per_column(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which a constant C of Gemm has shape [N]: one value is repeated, and one that differs from row to
    row becomes an Add behind the node.

    The Gemm keeps its name, and whatever makes the result takes its output's name.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    constants = {tensor.name: tensor for tensor in changed.graph.initializer}
    types = value_types(changed)
    for node in [node for node in changed.graph.node if node.op_type == "Gemm" and len(node.input) > 2]:
        shape = static_shape(types[node.output[0]]) if node.output[0] in types else None
        if node.input[2] not in constants or shape is None:
            continue
        bias = numpy_helper.to_array(constants[node.input[2]])
        if bias.shape == shape[1:]:
            continue
        if prod(bias.shape[:-1]) == 1:
            node.input[2] = _added(changed.graph, node, np.broadcast_to(bias.reshape(-1), shape[1:]))
        else:
            _split(changed.graph, node, bias)
    return changed


def _added(graph: onnx.GraphProto, node: onnx.NodeProto, data: Array) -> str:
    """Name of a new initializer."""
    name = f"{node.input[2]}/{node.name}"
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(data), name))
    return name


def _split(graph: onnx.GraphProto, node: onnx.NodeProto, bias: Array) -> None:
    beta = next((each.f for each in node.attribute if each.name == "beta"), 1.0)
    added, result = _added(graph, node, np.float32(beta) * bias), node.output[0]
    node.output[0] = f"{result}/product"
    del node.input[2:]
    add = helper.make_node("Add", [node.output[0], added], [result], f"{node.name}/Add")
    graph.node.insert(list(graph.node).index(node) + 1, add)
