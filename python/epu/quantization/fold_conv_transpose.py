"""Folds what follows a ConvTranspose into its weights, which ONNX Runtime does for Conv only."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]


def fold_conv_transpose(model: onnx.ModelProto) -> onnx.ModelProto:
    """ConvTranspose → Add (constant per channel) or BatchNormalization becomes one ConvTranspose with a bias.

    The ConvTranspose keeps its name and takes the name of the last output.
    """
    folded = onnx.ModelProto()
    folded.CopyFrom(model)
    for node in folded.graph.node:
        if node.op_type == "ConvTranspose":
            while _fold_follower(folded.graph, node):
                pass
    return folded


def _fold_follower(graph: onnx.GraphProto, node: onnx.NodeProto) -> bool:
    """Fold the only reader of ``node`` into it, where that is possible."""
    follower = _only_reader(graph, node.output[0])
    weight = _constant(graph, node.input[1])
    if follower is None or weight is None:
        return False
    groups = next((a.i for a in node.attribute if a.name == "group"), 1)
    channels = weight.shape[1] * groups
    bias = _constant(graph, node.input[2]) if len(node.input) > 2 else np.zeros(channels, np.float32)
    affine = _scale_and_offset(graph, follower, node.output[0], (weight.ndim, channels))
    if bias is None or affine is None:
        return False
    scale, offset = affine
    by_group = weight.reshape(groups, -1, *weight.shape[1:])
    scaled = by_group * scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
    _replace(graph, node, follower, scaled.reshape(weight.shape), bias * scale + offset)
    return True


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
    node.CopyFrom(helper.make_node("ConvTranspose", [node.input[0], *tensors], list(follower.output), node.name))
    node.attribute.extend(attributes)
    graph.node.remove(follower)
