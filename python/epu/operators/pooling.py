"""MaxPool, AveragePool, QLinearAveragePool, GlobalAveragePool, QLinearGlobalAveragePool."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from epu.constants import ceil_log2, integer_range, inverse
from epu.graph import Graph, Node
from epu.lanes import mulr, rshr, saturate
from epu.operators.reduce_mean import mean, mean_constants, mean_intervals, mean_of_sum
from epu.operators.requantise import requantise
from epu.operators.row import (
    CODES,
    FIXED,
    FLOAT_TENSORS,
    INT8_OUTPUT,
    PER_TENSOR,
    Array,
    Interval,
    Ints,
    Limit,
    Operator,
    Values,
    centred,
    frac,
    int8_inputs,
    interval,
    ints_attribute,
    output_tensor,
    quantized,
    required,
    same_format,
    same_intervals,
    value,
)
from epu.operators.windows import NO_AUTO_PAD, window_counts, windows


def kernel_shape(node: Node) -> tuple[int, ...]:
    return ints_attribute(node, "kernel_shape", ())


def spatial_axes(node: Node, graph: Graph) -> tuple[int, ...]:
    return tuple(range(2, len(required(node, graph, 0).shape)))


def max_pool_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    """Padding holds the type's lowest value, which a window of padding alone gives."""
    kernel, raw, dtype = kernel_shape(node), value(node, values, 0), values[node.inputs[0]].dtype
    seen = windows(raw, node, kernel, fill=integer_range(str(dtype))[0])
    return [seen.max(axis=tuple(range(-len(kernel), 0))).astype(dtype)]


def average_pool_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    kernel, source, output = kernel_shape(node), required(node, graph, 0), output_tensor(node, graph)
    total = windows(value(node, values, 0), node, kernel, fill=0).sum(axis=tuple(range(-len(kernel), 0)))
    counts, bits = window_counts(node, source.shape[2:], kernel), (frac(source), frac(output))
    if counts.min() == counts.max():
        return [mean_of_sum(total, mean_constants(int(counts.flat[0]), *bits))]
    first, factor, shift = position_constants(counts, *bits)
    return [saturate(mulr(saturate(rshr(total, first), "int32").astype(np.int64), factor, shift), "int32")]


def position_constants(counts: Ints, input_frac: int, output_frac: int) -> tuple[Ints, Ints, Ints]:
    """First shift, factor and last shift of each window's mean, where the windows count differently many values."""
    found = [(ceil_log2(n), *inverse(n)) for n in counts.ravel().tolist()]
    first, factor, k = (np.array(each, np.int64).reshape(counts.shape) for each in zip(*found))
    return first, factor, k - first + input_frac - output_frac


def window_scales(node: Node, graph: Graph) -> NDArray[np.float32]:
    """f32(sx / f32(sy * N)) of each window [out...]."""
    source, output = required(node, graph, 0), output_tensor(node, graph)
    counts = window_counts(node, source.shape[2:], kernel_shape(node)).astype(np.float32)
    x, y = (np.float32(quantized(each).scale[0]) for each in (source, output))
    found: NDArray[np.float32] = x / (y * counts)
    return found


def qlinear_average_pool_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    kernel = kernel_shape(node)
    total = windows(centred(node, graph, values, 0), node, kernel, fill=0).sum(axis=tuple(range(-len(kernel), 0)))
    scales = window_scales(node, graph)
    if scales.min() == scales.max():
        return [requantise(node, graph, total, np.asarray(scales.flat[0]), 1, rounding)]
    flat = total.reshape(*total.shape[:2], -1)
    return [requantise(node, graph, flat, scales.ravel(), 2, rounding).reshape(total.shape)]


def global_average_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    source, axes = required(node, graph, 0), spatial_axes(node, graph)
    count = prod(source.shape[axis] for axis in axes)
    constants = mean_constants(count, frac(source), frac(output_tensor(node, graph)))
    return [mean(value(node, values, 0), axes, constants)]


def qlinear_global_average_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    source, axes = required(node, graph, 0), spatial_axes(node, graph)
    count = np.float32(prod(source.shape[axis] for axis in axes))
    total = centred(node, graph, values, 0).sum(axis=axes, keepdims=True)
    x, y = (np.float32(quantized(each).scale[0]) for each in (source, output_tensor(node, graph)))
    return [requantise(node, graph, total, np.asarray(x / (y * count)), 1, rounding)]


def padded_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    """Zero padding counts as input."""
    low, high = interval(required(node, graph, 0))
    return {node.outputs[0]: (min(low, 0.0), max(high, 0.0))}


def check_same_quantization(node: Node, graph: Graph) -> str | None:
    kinds = (required(node, graph, 0).type, output_tensor(node, graph).type)
    return None if hasattr(kinds[0], "frac") or kinds[0] == kinds[1] else f"{kinds[0]} and {kinds[1]}"


def check_no_indices(node: Node, graph: Graph) -> str | None:
    return "2 outputs" if len(node.outputs) > 1 else None


def check_channels_first(node: Node, graph: Graph) -> str | None:
    return "channels_last 1" if node.attrs.get("channels_last", 0) else None


ROWS = (
    Operator(
        name="MaxPool",
        family="pool",
        limits=(
            NO_AUTO_PAD,
            Limit("input and output have the same type", check_same_quantization, (*CODES, *FIXED)),
            Limit("the indices are not asked for", check_no_indices),
        ),
        reference=max_pool_reference,
        intervals=same_intervals,
        formats=same_format,
    ),
    Operator(
        name="AveragePool",
        family="pool",
        limits=(FLOAT_TENSORS, NO_AUTO_PAD),
        reference=average_pool_reference,
        intervals=padded_intervals,
    ),
    Operator(
        name="QLinearAveragePool",
        family="pool",
        limits=(
            int8_inputs(0),
            INT8_OUTPUT,
            PER_TENSOR,
            NO_AUTO_PAD,
            Limit("channels come first (channels_last 0)", check_channels_first),
        ),
        reference=qlinear_average_pool_reference,
    ),
    Operator(
        name="GlobalAveragePool",
        family="reduce",
        limits=(FLOAT_TENSORS,),
        reference=global_average_reference,
        intervals=mean_intervals,
    ),
    Operator(
        name="QLinearGlobalAveragePool",
        family="reduce",
        limits=(
            int8_inputs(0),
            INT8_OUTPUT,
            PER_TENSOR,
            Limit("channels come first (channels_last 0)", check_channels_first),
        ),
        reference=qlinear_global_average_reference,
    ),
)
