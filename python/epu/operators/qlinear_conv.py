"""QLinearConv: int8 convolution, grouped or not, with one rounding per output."""

from __future__ import annotations

from math import prod

import numpy as np

from epu.graph import Graph, Node
from epu.operators.qlinear_matmul import (
    check_per_tensor_a,
    combined_scale,
    exact_matmul,
    product_formats,
    product_intervals,
)
from epu.operators.requantise import BIAS, RESULT, finished
from epu.operators.row import (
    Array,
    Interval,
    Ints,
    Limit,
    Operator,
    Values,
    centred,
    input_tensor,
    int8_inputs,
    output_tensor,
    quantized,
    required,
)
from epu.operators.windows import NO_AUTO_PAD, windows

LARGEST_KERNEL = 1 << 15


def conv_accumulator(x: Ints, w: Ints, node: Node) -> Ints:
    """int64 [batch, channels, rows, columns], or without rows, of centred operands."""
    group, taps = node.attrs.get("group", 1), w[0].size
    seen = windows(x, node, w.shape[2:], fill=0)  # batch, channels, out..., kernel...
    batch, channels, *out = seen.shape[: w.ndim]
    split = seen.reshape(batch, group, channels // group, prod(out), -1)
    left = split.transpose(0, 1, 3, 2, 4).reshape(batch, group, prod(out), taps)
    right = w.reshape(group, -1, taps).transpose(0, 2, 1)
    product = exact_matmul(left, right)
    return product.transpose(0, 1, 3, 2).reshape(batch, -1, *out)


def conv_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    acc = conv_accumulator(centred(node, graph, values, 0), centred(node, graph, values, 1), node)
    return [finished(node, graph, values, acc, combined_scale(node, graph), 1, rounding)]


def conv_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    taps = prod(required(node, graph, 1).shape[1:])
    return product_intervals(node, graph, taps, input_tensor(node, graph, 2))


def integer_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    """ConvInteger: the int32 sum itself."""
    found = conv_accumulator(centred(node, graph, values, 0), centred(node, graph, values, 1), node)
    return [found.astype(np.int32)]


def conv_macs(node: Node, graph: Graph) -> int:
    return prod(output_tensor(node, graph).shape) * prod(required(node, graph, 1).shape[1:])


def check_rank(node: Node, graph: Graph) -> str | None:
    found = len(required(node, graph, 0).shape)
    return None if found in (3, 4) else f"{found} dimensions"


def check_channel_axis(node: Node, graph: Graph) -> str | None:
    axis = quantized(required(node, graph, 1)).axis
    rank = len(required(node, graph, 1).shape)
    return None if axis in (None, 0, -rank) else f"axis {axis}"


def check_taps(node: Node, graph: Graph) -> str | None:
    found = int(np.prod(required(node, graph, 1).shape[1:]))
    return None if found < LARGEST_KERNEL else str(found)


CONV_LIMITS = (
    Limit("one or two spatial dimensions, channels first", check_rank),
    NO_AUTO_PAD,
    Limit("x has one scale and zero point", check_per_tensor_a),
    Limit("w has one scale and zero point, or one per output channel", check_channel_axis),
    Limit("a kernel has fewer than 32768 weights per output channel", check_taps),
)
ROWS = (
    Operator(
        name="QLinearConv",
        family="convolution",
        limits=(int8_inputs(0, 1), RESULT, BIAS, *CONV_LIMITS),
        reference=conv_reference,
        intervals=conv_intervals,
        formats=product_formats,
        macs=conv_macs,
    ),
    Operator(
        name="ConvInteger",
        family="convolution",
        limits=(int8_inputs(0, 1), *CONV_LIMITS),
        reference=integer_reference,
        macs=conv_macs,
    ),
)
