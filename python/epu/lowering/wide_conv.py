"""Conv on fixed point."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from epu.graph import Graph, Node
from epu.lowering.linear import window
from epu.lowering.lowered import Lowered, operand, result
from epu.lowering.pointwise import shifted_constant
from epu.lowering.split import by_windows
from epu.operators.conv import conv_shifts, taps
from epu.operators.row import frac, input_tensor

if TYPE_CHECKING:
    from epu.tir_schedules.convolution import ConvShape
    from epu.tir_schedules.kernel import Kernel


def lower_wide_conv(node: Node, graph: Graph, rounding: str) -> Lowered:
    """Conv over NCHW; one spatial dimension is a height of 1."""
    from epu.tir_schedules.wide_convolution import wide_convolution

    x, w, bias = operand(node, graph, 0), operand(node, graph, 1), input_tensor(node, graph, 2)
    shape = wide_conv_shape(node, graph, bias is not None)
    assert w.data is not None
    constants = {"W": w.data.reshape(shape.groups, shape.filters, shape.channels, *shape.kernel)}
    if bias is not None:
        moved = shifted_constant(node, bias, frac(bias) - frac(result(node, graph)))
        constants["bias"] = moved.reshape(shape.groups, shape.filters)
    scalars = dict(zip(("product_shift", "out_shift"), conv_shifts(node, graph, taps(node, graph))))

    def build(smaller: ConvShape) -> Kernel:
        return wide_convolution(smaller, "constant")

    splits = by_windows(shape, {"b": "batch", "g": "groups", "f": "filters"}, build)
    return Lowered(node, build(shape), {"X": x.name}, {"Y": node.outputs[0]}, constants, scalars, splits=splits)


def wide_conv_shape(node: Node, graph: Graph, bias: bool) -> ConvShape:
    from epu.tir_schedules.convolution import ConvShape

    x, w = operand(node, graph, 0), operand(node, graph, 1)
    kernel, strides, dilations, pads = window(node, w.shape[2:], len(x.shape) == 3)
    groups = int(node.attrs.get("group", 1))
    return ConvShape(
        batch=x.shape[0],
        groups=groups,
        channels=w.shape[1],
        filters=w.shape[0] // groups,
        height=prod(x.shape[2:-1]),
        width=x.shape[-1],
        kernel=kernel,
        strides=strides,
        pads=pads,
        dilations=dilations,
        bias=bias,
        per_channel=False,
        rounding="exact",
        **dict.fromkeys(("dtype", "x_dtype", "w_dtype"), "int32"),  # type: ignore[arg-type]
    )
