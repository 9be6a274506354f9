"""Conv on fixed point: sums of 32 x 32 bit products over windows, in 64 bits."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from epu.constants import ceil_log2
from epu.graph import Float, Graph, Node, Tensor
from epu.lanes import rshr, saturate
from epu.operators.conv_transpose import check_constant_weights
from epu.operators.matmul import LONGEST_SUM, wide_product
from epu.operators.qlinear_conv import check_rank
from epu.operators.row import (
    FLOAT_TENSORS,
    Array,
    Interval,
    Ints,
    Limit,
    Operator,
    Values,
    along,
    frac,
    input_tensor,
    interval,
    is_constant,
    output_tensor,
    required,
    value,
)
from epu.operators.windows import NO_AUTO_PAD, windows


def taps(node: Node, graph: Graph) -> int:
    """Products in a sum."""
    return prod(required(node, graph, 1).shape[1:])


def conv_shifts(node: Node, graph: Graph) -> tuple[int, int]:
    """sigma of each product, and the shift of the sum to the output's format."""
    x, w = (frac(required(node, graph, index)) for index in (0, 1))
    shift = ceil_log2(taps(node, graph))
    return shift, x + w - shift - frac(output_tensor(node, graph))


def wide_conv(x: Ints, w: Ints, node: Node, shift: int) -> Ints:
    """int64 sums [batch, filters, out...]; each product rounded to ``shift`` bits fewer."""
    groups, depth = int(node.attrs.get("group", 1)), w[0].size
    seen = windows(x, node, w.shape[2:], fill=0)  # batch, channels, out..., kernel...
    batch, channels, *out = seen.shape[: w.ndim]
    split = seen.reshape(batch, groups, channels // groups, prod(out), -1)
    left = split.transpose(0, 1, 3, 2, 4).reshape(batch, groups, prod(out), depth)
    total = wide_product(left, w.reshape(groups, -1, depth).transpose(0, 2, 1), shift)
    return total.transpose(0, 1, 3, 2).reshape(batch, -1, *out)


def conv_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    shift, out_shift = conv_shifts(node, graph)
    found = rshr(wide_conv(value(node, values, 0), value(node, values, 1), node, shift), out_shift)
    bias = input_tensor(node, graph, 2)
    if bias is not None:
        moved = rshr(value(node, values, 2), frac(bias) - frac(output_tensor(node, graph)))
        found = found + along(moved, 1, found.ndim)
    return [saturate(found, "int32")]


def conv_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    """Of constant weights the sums of each filter, else as many of the largest product as there are taps."""
    x, w, bias = (input_tensor(node, graph, index) for index in range(3))
    assert x is not None
    assert w is not None
    low, high = interval(x)
    low, high = min(low, 0.0), max(high, 0.0)  # padding
    ends = _filter_ends(w, low, high) if is_constant(w) and isinstance(w.type, Float) else None
    if ends is None:
        products = [a * b * taps(node, graph) for a, b in product((low, high), interval(w))]
        ends = min(products), max(products)
    offset = interval(bias) if bias is not None else (0.0, 0.0)
    return {node.outputs[0]: (ends[0] + offset[0], ends[1] + offset[1])}


def _filter_ends(w: Tensor, low: float, high: float) -> Interval:
    """The least and the largest sum of any filter over values from ``low`` to ``high``."""
    weights = np.asarray(w.data, np.float64).reshape(w.shape[0], -1)
    up, down = np.maximum(weights, 0.0).sum(axis=1), np.minimum(weights, 0.0).sum(axis=1)
    return float((up * low + down * high).min()), float((up * high + down * low).max())


def check_taps(node: Node, graph: Graph) -> str | None:
    found = taps(node, graph)
    return None if 0 < found <= LONGEST_SUM else str(found)


ROWS = (
    Operator(
        name="Conv",
        family="wide_convolution",
        limits=(
            FLOAT_TENSORS,
            Limit("one or two spatial dimensions, channels first", check_rank),
            NO_AUTO_PAD,
            Limit("weights and bias are constants", check_constant_weights),
            Limit("a kernel has 1 to 2**20 weights per output channel", check_taps),
        ),
        reference=conv_reference,
        intervals=conv_intervals,
    ),
)
