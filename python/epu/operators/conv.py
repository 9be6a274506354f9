"""Conv on fixed point: sums of 32 x 32 bit products over windows, in 64 bits."""

from __future__ import annotations

from itertools import product
from math import prod

from epu.constants import ceil_log2
from epu.graph import Graph, Node
from epu.lanes import rshr, saturate
from epu.operators.matmul import LONGEST_SUM, wide_product
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


def conv_shifts(node: Node, graph: Graph, count: int) -> tuple[int, int]:
    """sigma of each of ``count`` products, and the shift of their sum to the output's format."""
    x, w = (frac(required(node, graph, index)) for index in (0, 1))
    shift = ceil_log2(count)
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
    shift, out_shift = conv_shifts(node, graph, taps(node, graph))
    found = rshr(wide_conv(value(node, values, 0), value(node, values, 1), node, shift), out_shift)
    return [saturate(add_bias(node, graph, values, found), "int32")]


def add_bias(node: Node, graph: Graph, values: Values, found: Ints) -> Ints:
    """``found`` in the output's format plus the bias of each filter."""
    bias = input_tensor(node, graph, 2)
    if bias is None:
        return found
    moved = rshr(value(node, values, 2), frac(bias) - frac(output_tensor(node, graph)))
    total: Ints = found + along(moved, 1, found.ndim)
    return total


def conv_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return {node.outputs[0]: conv_bounds(node, graph, taps(node, graph))}


def conv_bounds(node: Node, graph: Graph, count: int) -> Interval:
    """``count`` of the largest products, with the bias."""
    x, w, bias = (input_tensor(node, graph, index) for index in range(3))
    assert x is not None
    assert w is not None
    ends = [a * b * count for a, b in product((*interval(x), 0.0), interval(w))]  # padding is 0
    low, high = interval(bias) if bias is not None else (0.0, 0.0)
    return min(ends) + low, max(ends) + high


def check_constant_weights(node: Node, graph: Graph) -> str | None:
    tensors = [input_tensor(node, graph, index) for index in (1, 2)]
    variable = [tensor.name for tensor in tensors if tensor is not None and not is_constant(tensor)]
    return f"'{variable[0]}'" if variable else None


def check_rank(node: Node, graph: Graph) -> str | None:
    found = len(required(node, graph, 0).shape)
    return None if found in (3, 4) else f"{found} dimensions"


def check_taps(node: Node, graph: Graph) -> str | None:
    found = taps(node, graph)
    return None if 0 < found <= LONGEST_SUM else str(found)


IMAGE = Limit("one or two spatial dimensions, channels first", check_rank)
CONSTANT_WEIGHTS = Limit("weights and bias are constants", check_constant_weights)
TAPS = "a kernel has 1 to 2**20 weights per output channel"
ROWS = (
    Operator(
        name="Conv",
        family="wide_convolution",
        limits=(
            FLOAT_TENSORS,
            IMAGE,
            NO_AUTO_PAD,
            CONSTANT_WEIGHTS,
            Limit(TAPS, check_taps),
        ),
        reference=conv_reference,
        intervals=conv_intervals,
    ),
)
