"""Float operators in float64 that ONNX's reference lacks, keeps in float32, or computes slowly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from scipy.special import erf

from epu import exact_windows as pools

Reals = NDArray[np.float64]
Operands = Sequence[Any]
Function = Callable[[onnx.NodeProto, Operands], Any]


def float64_function(node: onnx.NodeProto) -> Function | None:
    """What computes the node; None leaves it to ONNX's reference."""
    if node.op_type in POOLS and not pools.plain_windows(node):
        return None
    if node.op_type == "ConvTranspose" and not plain_transpose(node):
        return None
    return FUNCTIONS.get(node.op_type)


def plain_transpose(node: onnx.NodeProto) -> bool:
    """Whether a ConvTranspose has one group and explicit padding."""
    given = pools.attributes(node)
    explicit = given.get("auto_pad", b"NOTSET") in (b"NOTSET", b"") and "output_shape" not in given
    return explicit and given.get("group", 1) == 1


def conv_transpose(node: onnx.NodeProto, operands: Operands) -> Reals:
    """Each kernel position is one product of matrices, added where its stride puts it."""
    given = pools.attributes(node)
    x, w, *bias = operands
    kernel, rank = w.shape[2:], x.ndim - 2
    strides, dilations = (tuple(given.get(name) or (1,) * rank) for name in ("strides", "dilations"))
    pads = tuple(given.get("pads") or (0,) * (2 * rank))
    extra = tuple(given.get("output_padding") or (0,) * rank)
    size = [(n - 1) * s + (k - 1) * d + 1 + e for n, s, k, d, e in zip(x.shape[2:], strides, kernel, dilations, extra)]
    whole = np.zeros((x.shape[0], w.shape[1], *size))
    for place in np.ndindex(*kernel):
        starts = [p * d for p, d in zip(place, dilations)]
        ends = [start + (n - 1) * s + 1 for start, n, s in zip(starts, x.shape[2:], strides)]
        target = (slice(None), slice(None), *map(slice, starts, ends, strides))
        weight = (slice(None), slice(None), *place)
        whole[target] += np.einsum("cf,nc...->nf...", w[weight], x, optimize=True)
    inside = (slice(None), slice(None), *(slice(low, n - high) for low, high, n in zip(pads[:rank], pads[rank:], size)))
    found: Reals = whole[inside]
    return found + bias[0].reshape(1, -1, *[1] * rank) if bias and bias[0] is not None else found


def layer_norm(node: onnx.NodeProto, operands: Operands) -> Reals:
    given = pools.attributes(node)
    x, gamma, *beta = operands
    axes = tuple(range(given.get("axis", -1) % x.ndim, x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = np.square(centred).mean(axis=axes, keepdims=True)
    found: Reals = centred / np.sqrt(variance + given.get("epsilon", 1e-5)) * gamma
    return found + beta[0] if beta and beta[0] is not None else found


def gelu(node: onnx.NodeProto, operands: Operands) -> Reals:
    (x,) = operands
    if pools.attributes(node).get("approximate", b"none") == b"tanh":
        return tanh_gelu(node, operands)
    return np.asarray(0.5 * x * (1.0 + erf(x / np.sqrt(2.0))))


def tanh_gelu(node: onnx.NodeProto, operands: Operands) -> Reals:
    x = operands[0] if len(operands) < 2 or operands[1] is None else operands[0] + operands[1]
    return np.asarray(0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))))


def quick_gelu(node: onnx.NodeProto, operands: Operands) -> Reals:
    (x,) = operands
    return np.asarray(x / (1.0 + np.exp(-pools.attributes(node).get("alpha", 1.702) * x)))


def average_pool(node: onnx.NodeProto, operands: Operands) -> Reals:
    (x,) = operands
    return np.asarray(pools.sums(node, x) / pools.counts(node, x.shape))


def _over_space(fold: Callable[..., Any], operands: Operands) -> Reals:
    (x,) = operands
    return np.asarray(fold(x, axis=tuple(range(2, x.ndim)), keepdims=True))


def sigmoid(node: onnx.NodeProto, operands: Operands) -> Reals:
    from scipy.special import expit

    return np.asarray(expit(operands[0]))


POOLS = ("AveragePool", "MaxPool")
FUNCTIONS: dict[str, Function] = {
    "AveragePool": average_pool,
    "ConvTranspose": conv_transpose,
    "Erf": lambda node, operands: np.asarray(erf(operands[0])),
    "FastGelu": tanh_gelu,
    "Gelu": gelu,
    "GlobalAveragePool": lambda node, operands: _over_space(np.mean, operands),
    "GlobalMaxPool": lambda node, operands: _over_space(np.max, operands),
    "LayerNormalization": layer_norm,
    "MaxPool": lambda node, operands: pools.maxima(node, operands[0]),
    "QuickGelu": quick_gelu,
    "Sigmoid": sigmoid,
}
