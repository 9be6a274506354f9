"""Folds what follows a convolution channel by channel into its weights, where ONNX Runtime leaves it.

ONNX Runtime 1.23 folds nothing into ConvTranspose, and nothing into Conv from opset 22 on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]


def fold_channels(model: onnx.ModelProto) -> onnx.ModelProto:
    """Conv or ConvTranspose → Add (constant per channel) or BatchNormalization becomes one convolution with a bias.

    The convolution keeps its name and takes the name of the last output.
    """
    folded = onnx.ModelProto()
    folded.CopyFrom(model)
    for node in [node for node in folded.graph.node if node.op_type in ("Conv", "ConvTranspose")]:
        while _fold_follower(folded.graph, node):
            pass
    return folded


def _fold_follower(graph: onnx.GraphProto, node: onnx.NodeProto) -> bool:
    """Fold the only reader of ``node`` into it, where that is possible."""
    follower = _only_reader(graph, node.output[0])
    weight = _constant(graph, node.input[1])
    if follower is None or weight is None:
        return False
    by_channel = _by_output_channel(node, weight)
    channels = int(by_channel.max()) + 1
    bias = _constant(graph, node.input[2]) if len(node.input) > 2 else np.zeros(channels, np.float32)
    affine = _scale_and_offset(graph, follower, node.output[0], (weight.ndim, channels))
    if bias is None or affine is None:
        return False
    scale, offset = affine
    _replace(graph, node, follower, weight * scale[by_channel], bias * scale + offset)
    return True


def _by_output_channel(node: onnx.NodeProto, weight: Array) -> NDArray[np.int64]:
    """Return the output channel of each weight, in a shape that broadcasts over the weights.

    Conv weights are [outputs, inputs / groups, ...], those of ConvTranspose [inputs, outputs / groups, ...].
    """
    kernel = [1] * (weight.ndim - 2)
    if node.op_type == "Conv":
        return np.arange(weight.shape[0]).reshape(-1, 1, *kernel)
    groups = next((a.i for a in node.attribute if a.name == "group"), 1)
    channels = np.arange(weight.shape[1] * groups).reshape(groups, 1, -1)
    inputs = weight.shape[0] // groups
    return np.broadcast_to(channels, (groups, inputs, weight.shape[1])).reshape(-1, weight.shape[1], *kernel)


def _scale_and_offset(
    graph: onnx.GraphProto, node: onnx.NodeProto, source: str, layout: tuple[int, int]
) -> tuple[Array, Array] | None:
    """Return what ``node`` multiplies and adds per channel, float64; ``layout`` is (rank, channels)."""
    if node.op_type == "BatchNormalization" and node.input[0] == source and len(node.output) == 1:
        constants = [_constant(graph, name) for name in node.input[1:5]]
        if any(value is None for value in constants):
            return None
        gamma, beta, mean, variance = (np.asarray(value, np.float64) for value in constants)
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        scale = gamma / np.sqrt(variance + epsilon)
        return scale, beta - mean * scale
    if node.op_type == "Add":
        offset = _constant(graph, node.input[1] if node.input[0] == source else node.input[0])
        if offset is not None and _is_per_channel(offset, *layout):
            return np.ones(layout[1]), offset.reshape(-1).astype(np.float64)
    return None


def _is_per_channel(value: Array, rank: int, channels: int) -> bool:
    """Whether ``value`` broadcasts to [N, channels, ...] of that rank with one number per channel."""
    padded = (1,) * (rank - value.ndim) + value.shape
    return padded == (1, channels, *[1] * (rank - 2))


def _only_reader(graph: onnx.GraphProto, tensor: str) -> onnx.NodeProto | None:
    readers = [node for node in graph.node if tensor in node.input]
    is_output = any(value.name == tensor for value in graph.output)
    return readers[0] if len(readers) == 1 and not is_output else None


def _constant(graph: onnx.GraphProto, name: str) -> Array | None:
    found = next((tensor for tensor in graph.initializer if tensor.name == name), None)
    return None if found is None else numpy_helper.to_array(found)


def _replace(
    graph: onnx.GraphProto, node: onnx.NodeProto, follower: onnx.NodeProto, weight: Array, bias: Array
) -> None:
    tensors = {f"{node.name}.folded_weight": weight, f"{node.name}.folded_bias": bias}
    kept = [tensor for tensor in graph.initializer if tensor.name not in tensors]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(v.astype(np.float32), name) for name, v in tensors.items())
    attributes = list(node.attribute)
    node.CopyFrom(helper.make_node(node.op_type, [node.input[0], *tensors], list(follower.output), node.name))
    node.attribute.extend(attributes)
    graph.node.remove(follower)
