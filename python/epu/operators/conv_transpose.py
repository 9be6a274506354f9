"""ConvTranspose on int8 and on fixed point; ``expand_conv_transpose`` gives both to other kernels."""

from __future__ import annotations

from math import prod

import numpy as np

from epu.graph import Graph, Node
from epu.lanes import rshr, saturate
from epu.operators.conv import CONSTANT_WEIGHTS, IMAGE, TAPS, add_bias, conv_bounds, conv_shifts, wide_conv
from epu.operators.matmul import LONGEST_SUM, wide_product
from epu.operators.qlinear_conv import conv_accumulator
from epu.operators.qlinear_matmul import check_per_tensor_a, combined_scale, product_formats, product_intervals
from epu.operators.requantise import BIAS, RESULT, finished
from epu.operators.row import (
    FLOAT_TENSORS,
    Array,
    Interval,
    Ints,
    Limit,
    Operator,
    Values,
    centred,
    input_tensor,
    int8_inputs,
    ints_attribute,
    output_tensor,
    quantized,
    required,
    same_format,
    same_intervals,
    value,
)


def kernel_size(node: Node, graph: Graph) -> tuple[int, ...]:
    return required(node, graph, 1).shape[2:]


def stuffed_pads(node: Node, graph: Graph) -> tuple[int, ...]:
    """Padding of the convolution over the zero-stuffed input that gives the same sums; all begins, then all ends."""
    kernel = kernel_size(node, graph)
    rank = len(kernel)
    dilations, extra = (
        ints_attribute(node, "dilations", (1,) * rank),
        ints_attribute(node, "output_padding", (0,) * rank),
    )
    pads = ints_attribute(node, "pads", (0,) * 2 * rank)
    reach = [d * (k - 1) for k, d in zip(kernel, dilations)]
    return (*(r - p for r, p in zip(reach, pads)), *(r - p + e for r, p, e in zip(reach, pads[rank:], extra)))


def flipped(weights: Array, groups: int) -> Array:
    """[channels, filters / groups, …] as the weights [filters, channels / groups, …] of that convolution."""
    channels, filters = weights.shape[:2]
    split = weights.reshape(groups, channels // groups, filters, *weights.shape[2:])
    split = np.flip(split, axis=tuple(range(3, split.ndim)))
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(groups * filters, channels // groups, *weights.shape[2:]))


def stuffed(x: Ints, strides: tuple[int, ...], fill: int) -> Ints:
    """``x`` with ``stride - 1`` positions of ``fill`` between neighbours along the spatial axes."""
    sizes = [(n - 1) * s + 1 for n, s in zip(x.shape[2:], strides)]
    found = np.full((*x.shape[:2], *sizes), fill, x.dtype)
    every = (slice(None), slice(None), *(slice(None, None, stride) for stride in strides))
    found[every] = x
    return found


def stuff_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    return [stuffed(values[node.inputs[0]], ints_attribute(node, "strides", ()), int(node.attrs["value"]))]


def as_conv(node: Node, graph: Graph, x: Ints, w: Ints) -> tuple[Ints, Ints, Node]:
    """Input, weights and node of the convolution that gives the same sums."""
    ones = (1,) * len(kernel_size(node, graph))
    plain = Node(node.name, node.op, [], [], {**node.attrs, "pads": stuffed_pads(node, graph), "strides": ones})
    seen = stuffed(x, ints_attribute(node, "strides", ones), 0)
    return seen, flipped(w, int(node.attrs.get("group", 1))), plain


def int8_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    groups = int(node.attrs.get("group", 1))
    acc = conv_accumulator(*as_conv(node, graph, centred(node, graph, values, 0), centred(node, graph, values, 1)))
    scales = np.ravel(combined_scale(node, graph))
    scales = np.tile(scales, groups) if scales.size > 1 else scales
    return [finished(node, graph, values, acc, scales, 1, rounding)]


def int8_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return product_intervals(node, graph, flipped_taps(node, graph), input_tensor(node, graph, 2))


def fixed_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    if is_by_pixel(node, graph):
        return by_pixel_reference(node, graph, values)
    shift, out_shift = conv_shifts(node, graph, flipped_taps(node, graph))
    found = wide_conv(*as_conv(node, graph, value(node, values, 0), value(node, values, 1)), shift)
    return [saturate(add_bias(node, graph, values, rshr(found, out_shift)), "int32")]


def by_pixel_reference(node: Node, graph: Graph, values: Values) -> list[Array]:
    """Each output is one product of the pixel's channels: the kernel is as large as the stride."""
    x, w, out = value(node, values, 0), value(node, values, 1), output_tensor(node, graph)
    (batch, channels, height, width), (filters, rows, columns) = x.shape, w.shape[1:]
    shift, out_shift = conv_shifts(node, graph, channels)
    pixels = x.transpose(0, 2, 3, 1).reshape(-1, channels)
    total = rshr(wide_product(pixels, w.reshape(channels, -1), shift), out_shift)
    spread = total.reshape(batch, height, width, filters, rows, columns).transpose(0, 3, 1, 4, 2, 5)
    return [saturate(add_bias(node, graph, values, spread.reshape(out.shape)), "int32")]


def flipped_taps(node: Node, graph: Graph) -> int:
    """Products in a sum of the convolution that gives the same sums."""
    return prod(kernel_size(node, graph)) * required(node, graph, 0).shape[1] // int(node.attrs.get("group", 1))


def fixed_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    """Sums of as many products as the weights of one filter, or as the channels."""
    count = required(node, graph, 0).shape[1] if is_by_pixel(node, graph) else flipped_taps(node, graph)
    return {node.outputs[0]: conv_bounds(node, graph, count)}


def is_by_pixel(node: Node, graph: Graph) -> bool:
    """Whether the kernel is as large as the stride and nothing else is special, over two dimensions."""
    kernel = kernel_size(node, graph)
    plain = {"strides": kernel, "pads": (0,) * 4, "dilations": (1, 1), "output_padding": (0, 0)}
    defaults = {**plain, "strides": (1, 1)}
    return (
        len(kernel) == 2
        and int(node.attrs.get("group", 1)) == 1
        and all(ints_attribute(node, name, defaults[name]) == only for name, only in plain.items())
    )


def conv_transpose_macs(node: Node, graph: Graph) -> int:
    return prod(required(node, graph, 0).shape) * prod(required(node, graph, 1).shape[1:])


def check_pads(node: Node, graph: Graph) -> str | None:
    found = stuffed_pads(node, graph)
    return f"pads {node.attrs.get('pads')}" if min(found) < 0 else None


def check_taps(node: Node, graph: Graph) -> str | None:
    found = flipped_taps(node, graph)
    return None if 0 < found <= LONGEST_SUM else str(found)


def check_channel_axis(node: Node, graph: Graph) -> str | None:
    axis = quantized(required(node, graph, 1)).axis
    return None if axis in (None, 1, -3) else f"axis {axis}"


SMALL_PADS = Limit("padding is smaller than the kernel", check_pads)
ROWS = (
    Operator(
        name="QLinearConvTranspose",
        family="convolution",
        limits=(
            int8_inputs(0, 1),
            RESULT,
            BIAS,
            IMAGE,
            CONSTANT_WEIGHTS,
            Limit("x has one scale and zero point", check_per_tensor_a),
            Limit("w has one scale and zero point, or one per filter", check_channel_axis),
            SMALL_PADS,
        ),
        reference=int8_reference,
        intervals=int8_intervals,
        formats=product_formats,
        macs=conv_transpose_macs,
    ),
    Operator(
        name="ConvTranspose",
        family="wide_convolution",
        limits=(FLOAT_TENSORS, IMAGE, CONSTANT_WEIGHTS, SMALL_PADS, Limit(TAPS, check_taps)),
        reference=fixed_reference,
        intervals=fixed_intervals,
    ),
    Operator("ZeroStuff", "moves", (), stuff_reference, same_intervals, formats=same_format),
)
