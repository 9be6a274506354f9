"""ConvTranspose on int8 and on fixed point; ``expand_conv_transpose`` gives both to other kernels."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from epu.constants import ceil_log2
from epu.graph import Graph, Node
from epu.lanes import rshr, saturate
from epu.operators.matmul import wide_product
from epu.operators.qlinear_conv import conv_accumulator
from epu.operators.qlinear_matmul import check_per_tensor_a, combined_scale
from epu.operators.requantise import requantise
from epu.operators.row import (
    FLOAT_TENSORS,
    INT8_OUTPUT,
    Array,
    Interval,
    Ints,
    Limit,
    Operator,
    Values,
    along,
    centred,
    frac,
    input_tensor,
    int8_inputs,
    interval,
    ints_attribute,
    is_constant,
    output_tensor,
    quantized,
    required,
    value,
)


def kernel_size(node: Node, graph: Graph) -> tuple[int, ...]:
    return required(node, graph, 1).shape[2:]


def stuffed_pads(node: Node, graph: Graph) -> tuple[int, ...]:
    """Padding of the convolution over the zero-stuffed input that gives the same sums; all begins, then all ends."""
    kernel, dilations = kernel_size(node, graph), ints_attribute(node, "dilations", (1, 1))
    pads, extra = ints_attribute(node, "pads", (0,) * 4), ints_attribute(node, "output_padding", (0, 0))
    reach = [d * (k - 1) for k, d in zip(kernel, dilations)]
    return (*(r - p for r, p in zip(reach, pads)), *(r - p + e for r, p, e in zip(reach, pads[2:], extra)))


def flipped(weights: Array, groups: int) -> Array:
    """[channels, filters / groups, …] as the weights [filters, channels / groups, …] of that convolution."""
    channels, filters = weights.shape[:2]
    split = weights.reshape(groups, channels // groups, filters, *weights.shape[2:])[..., ::-1, ::-1]
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(groups * filters, channels // groups, *weights.shape[2:]))


def stuffed(x: Ints, strides: tuple[int, ...], fill: int) -> Ints:
    """``x`` with ``stride - 1`` positions of ``fill`` between neighbours along the spatial axes."""
    sizes = [(n - 1) * s + 1 for n, s in zip(x.shape[2:], strides)]
    found = np.full((*x.shape[:2], *sizes), fill, x.dtype)
    found[:, :, :: strides[0], :: strides[1]] = x
    return found


def stuff_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    return [stuffed(values[node.inputs[0]], ints_attribute(node, "strides", ()), int(node.attrs["value"]))]


def int8_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    groups = int(node.attrs.get("group", 1))
    plain = Node(node.name, node.op, [], [], {**node.attrs, "pads": stuffed_pads(node, graph), "strides": (1, 1)})
    x = stuffed(centred(node, graph, values, 0), ints_attribute(node, "strides", (1, 1)), 0)
    acc = conv_accumulator(x, flipped(centred(node, graph, values, 1), groups), plain)
    if input_tensor(node, graph, 2) is not None:
        acc = acc + along(value(node, values, 2), 1, acc.ndim)
    scales = np.ravel(combined_scale(node, graph))
    scales = np.tile(scales, groups) if scales.size > 1 else scales
    return [requantise(node, graph, acc, scales, 1, rounding)]


def fixed_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    """Each output is one product of the pixel's channels: the kernel is as large as the stride."""
    x, w, out = value(node, values, 0), value(node, values, 1), output_tensor(node, graph)
    (batch, channels, height, width), (filters, rows, columns) = x.shape, w.shape[1:]
    shift = ceil_log2(channels)
    pixels = x.transpose(0, 2, 3, 1).reshape(-1, channels)
    total = wide_product(pixels, w.reshape(channels, -1), shift)
    bits = frac(required(node, graph, 0)) + frac(required(node, graph, 1)) - shift - frac(out)
    spread = rshr(total, bits).reshape(batch, height, width, filters, rows, columns).transpose(0, 3, 1, 4, 2, 5)
    found = spread.reshape(out.shape)
    bias = input_tensor(node, graph, 2)
    if bias is not None:
        found = found + along(rshr(value(node, values, 2), frac(bias) - frac(out)), 1, 4)
    return [saturate(found, "int32")]


def fixed_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    """Sums of as many products as there are channels."""
    x, w, bias = (input_tensor(node, graph, index) for index in range(3))
    assert x is not None
    assert w is not None
    ends = [a * b * x.shape[1] for a, b in product(interval(x), interval(w))]
    low, high = interval(bias) if bias is not None else (0.0, 0.0)
    return {node.outputs[0]: (min(ends) + low, max(ends) + high)}


def conv_transpose_macs(node: Node, graph: Graph) -> int:
    return prod(required(node, graph, 0).shape) * prod(required(node, graph, 1).shape[1:])


def check_square_kernel(node: Node, graph: Graph) -> str | None:
    kernel = kernel_size(node, graph)
    plain = {"strides": kernel, "pads": (0,) * 4, "dilations": (1, 1), "output_padding": (0, 0)}
    found = {
        name: ints_attribute(node, name, default if name != "strides" else (1, 1)) for name, default in plain.items()
    }
    wrong = [f"{name} {found[name]} with kernel {kernel}" for name in plain if found[name] != tuple(plain[name])]
    return wrong[0] if wrong else "group" if node.attrs.get("group", 1) != 1 else None


def check_pads(node: Node, graph: Graph) -> str | None:
    found = stuffed_pads(node, graph)
    return f"pads {node.attrs.get('pads')}" if min(found) < 0 else None


def check_rank(node: Node, graph: Graph) -> str | None:
    found = len(required(node, graph, 0).shape)
    return None if found == 4 else f"{found} dimensions"


def check_constant_weights(node: Node, graph: Graph) -> str | None:
    tensors = [input_tensor(node, graph, index) for index in (1, 2)]
    variable = [tensor.name for tensor in tensors if tensor is not None and not is_constant(tensor)]
    return f"'{variable[0]}'" if variable else None


def check_channel_axis(node: Node, graph: Graph) -> str | None:
    axis = quantized(required(node, graph, 1)).axis
    return None if axis in (None, 1, -3) else f"axis {axis}"


IMAGE = Limit("two spatial dimensions, NCHW", check_rank)
CONSTANT = Limit("weights and bias are constants", check_constant_weights)
ROWS = (
    Operator(
        name="QLinearConvTranspose",
        family="convolution",
        limits=(
            int8_inputs(0, 1),
            INT8_OUTPUT,
            IMAGE,
            CONSTANT,
            Limit("x has one scale and zero point", check_per_tensor_a),
            Limit("w has one scale and zero point, or one per filter", check_channel_axis),
            Limit("padding is smaller than the kernel", check_pads),
        ),
        reference=int8_reference,
        macs=conv_transpose_macs,
    ),
    Operator(
        name="ConvTranspose",
        family="wide_matmul",
        limits=(
            FLOAT_TENSORS,
            IMAGE,
            CONSTANT,
            Limit("the kernel is as large as the stride, without padding, dilation or groups", check_square_kernel),
        ),
        reference=fixed_reference,
        intervals=fixed_intervals,
    ),
    Operator("ZeroStuff", "moves", (), stuff_reference),
)
