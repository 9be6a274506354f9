"""Say where a bias was too large for int32 at the scale of its products, and what that did to the weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from epu.log import get_logger

log = get_logger("quantize")

MOST_CODE = 127  # of a symmetric int8 weight
TOLERANCE = 1.01  # of a scale that is the weights' own, rounded


def warn_of_large_biases(model: onnx.ModelProto, quantized: onnx.ModelProto) -> None:
    """Warn of each layer of the float ``model`` whose weight scale ONNX Runtime raised so that its bias fits int32.

    The bias itself is then exact and never wraps round; the weights have lost steps.
    """
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantized.graph.initializer}
    for node, weight, bias in _layers(model):
        scale = stored.get(f"{node.input[1]}_scale")
        if scale is None or not np.any(weight):
            continue
        own = _largest(node, weight, scale.size) / MOST_CODE
        raised = scale.reshape(-1) / np.where(own > 0, own, scale.reshape(-1))
        worst = int(raised.argmax())
        if raised[worst] > TOLERANCE:
            log.warning(
                "layer '%s' (%s): a bias of %g is beyond int32 (2**31 steps) at the scale of its products; the weight scale was "
                "raised from %g to %g, which leaves the weights %d of %d steps. Rescale the layer, or leave it float "
                "with exclude=['%s'].",
                node.name,
                node.op_type,
                float(np.abs(bias).max()),
                float(own[worst]),
                float(scale.reshape(-1)[worst]),
                int(MOST_CODE / raised[worst]),
                MOST_CODE,
                node.name,
            )


def _layers(model: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, NDArray[Any], NDArray[Any]]]:
    """Conv and Gemm with constant weights and bias."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm") and len(node.input) > 2 and {*node.input[1:3]} <= set(constants):
            weight, bias = (numpy_helper.to_array(constants[name]) for name in node.input[1:3])
            yield node, weight, bias


def _largest(node: onnx.NodeProto, weight: NDArray[Any], scales: int) -> NDArray[Any]:
    """Largest magnitude of the weights for each of ``scales`` scales: one, or one per output channel."""
    if scales == 1:
        return np.abs(weight).max().reshape(1)
    turned = node.op_type == "Conv" or any(each.name == "transB" and each.i for each in node.attribute)
    axis = 0 if turned else weight.ndim - 1
    largest: NDArray[Any] = np.abs(np.moveaxis(weight, axis, 0)).reshape(weight.shape[axis], -1).max(axis=1)
    return largest
