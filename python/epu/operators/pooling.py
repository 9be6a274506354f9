"""MaxPool, AveragePool, GlobalAveragePool, QLinearGlobalAveragePool."""

from __future__ import annotations

from math import prod

import numpy as np

from epu.graph import Graph, Node
from epu.operators.reduce_mean import mean, mean_constants, mean_intervals
from epu.operators.requantise import requantise
from epu.operators.row import (
    FLOAT_TENSORS,
    INT8_OUTPUT,
    PER_TENSOR,
    Array,
    Interval,
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
    value,
)
from epu.operators.windows import FLOOR_MODE, NO_AUTO_PAD, windows

LOWEST = -(1 << 31)


def kernel_shape(node: Node) -> tuple[int, ...]:
    return ints_attribute(node, "kernel_shape", ())


def spatial_axes(node: Node, graph: Graph) -> tuple[int, ...]:
    return tuple(range(2, len(required(node, graph, 0).shape)))


def max_pool_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    kernel, raw = kernel_shape(node), value(node, values, 0)
    seen = windows(raw, node, kernel, fill=LOWEST)
    return [seen.max(axis=tuple(range(-len(kernel), 0))).astype(values[node.inputs[0]].dtype)]


def average_pool_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    kernel, output = kernel_shape(node), output_tensor(node, graph)
    seen = windows(value(node, values, 0), node, kernel, fill=0)
    constants = mean_constants(prod(kernel), frac(required(node, graph, 0)), frac(output))
    return [mean(seen, tuple(range(-len(kernel), 0)), constants).reshape(output.shape)]


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


def same_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return {node.outputs[0]: interval(required(node, graph, 0))}


def padded_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    """Zero padding counts as input."""
    low, high = interval(required(node, graph, 0))
    return {node.outputs[0]: (min(low, 0.0), max(high, 0.0))}


def check_same_quantization(node: Node, graph: Graph) -> str | None:
    kinds = (required(node, graph, 0).type, output_tensor(node, graph).type)
    return None if hasattr(kinds[0], "frac") or kinds[0] == kinds[1] else f"{kinds[0]} and {kinds[1]}"


def check_no_indices(node: Node, graph: Graph) -> str | None:
    return "2 outputs" if len(node.outputs) > 1 else None


def check_counted_padding(node: Node, graph: Graph) -> str | None:
    pads = node.attrs.get("pads") or ()
    return f"pads {tuple(pads)}" if any(pads) and not node.attrs.get("count_include_pad", 0) else None


def check_channels_first(node: Node, graph: Graph) -> str | None:
    return "channels_last 1" if node.attrs.get("channels_last", 0) else None


ROWS = (
    Operator(
        name="MaxPool",
        family="pool",
        limits=(
            NO_AUTO_PAD,
            FLOOR_MODE,
            Limit("input and output have the same type", check_same_quantization),
            Limit("the indices are not asked for", check_no_indices),
        ),
        reference=max_pool_reference,
        intervals=same_intervals,
        formats=same_format,
    ),
    Operator(
        name="AveragePool",
        family="pool",
        limits=(
            FLOAT_TENSORS,
            NO_AUTO_PAD,
            FLOOR_MODE,
            Limit("no padding, or padding that counts (count_include_pad 1)", check_counted_padding),
        ),
        reference=average_pool_reference,
        intervals=padded_intervals,
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
