"""QLinearConv and ConvInteger; the end of a product, which those of matrices share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epu.constants import multipliers
from epu.errors import UnsupportedNode
from epu.graph import Fixed, Graph, Node, Quantized, Tensor
from epu.lowering.lowered import Lowered, dtype_of, operand, result, zero_of
from epu.lowering.observe import covered_result, observe_sum, product_scales
from epu.lowering.pointwise import shifted_constant
from epu.lowering.requantisation import folded_bias
from epu.lowering.split import by_windows
from epu.operators.qlinear_matmul import combined_scale
from epu.operators.requantise import fixed_multipliers
from epu.operators.row import frac, input_tensor, quantized
from epu.passes.expand_zero_points import FIRST_SUM

if TYPE_CHECKING:
    from epu.tir_schedules.convolution import ConvShape

Array = NDArray[Any]
INTEGER = ("MatMulInteger", "ConvInteger")  # the result is the int32 sum
BIASED = ("QLinearConv", "QGemm")  # a product of matrices has sums for zero points where these have a bias


def finishing(node: Node, graph: Graph, count: int) -> tuple[dict[str, Array], dict[str, int]]:
    """Factor and shift as scalars for one scale, as int32 vectors for several; the zero point of a quantized output, the
    bias of a fixed-point one, of ``count`` columns or filters."""
    y, scales = result(node, graph), np.ravel(combined_scale(node, graph))
    factors, shifts = fixed_multipliers(scales, frac(y)) if isinstance(y.type, Fixed) else multipliers(scales)
    bias = real_bias(node, graph)
    constants, scalars = {}, {} if bias is not None else {"zero_point": 0 if isinstance(y.type, Fixed) else zero_of(y)}
    if bias is not None:
        moved = shifted_constant(node, bias, frac(bias) - frac(y)).reshape(-1)
        constants["addend"] = np.ascontiguousarray(np.broadcast_to(moved, (count,)))
    if scales.size == 1:
        return constants, {**scalars, "factor": int(factors[0]), "shift": int(shifts[0])}
    return {**constants, "factor": factors.astype(np.int32), "shift": shifts.astype(np.int32)}, scalars


def integer_bias(node: Node, graph: Graph) -> Array | None:
    """The int32 bias, in units of the sums."""
    bias = input_tensor(node, graph, 2) if node.op in BIASED else None
    return None if bias is None or isinstance(bias.type, Fixed) else bias.data


def real_bias(node: Node, graph: Graph) -> Tensor | None:
    """The fixed-point bias of a fixed-point output."""
    bias = input_tensor(node, graph, 2) if node.op in BIASED else None
    return bias if bias is not None and isinstance(bias.type, Fixed) else None


def lower_conv(node: Node, graph: Graph, rounding: str) -> Lowered:
    """QLinearConv and ConvInteger over NCHW; one spatial dimension is a height of 1."""
    from epu.tir_schedules.convolution import convolution

    x, w = operand(node, graph, 0), operand(node, graph, 1)
    if w.data is None:
        raise UnsupportedNode(
            f"ONNX node '{node.name}' ({node.op}): the weights must be constant, found the variable '{w.name}'. "
            "Store them as an initializer."
        )
    sums = w.data.reshape(w.shape[0], -1).astype(np.int64).sum(axis=1)
    total = folded_bias(node, -zero_of(x) * sums, integer_bias(node, graph))
    shape = conv_shape(node, graph, total is not None, rounding)
    constants, scalars = conv_constants(node, graph, shape)
    if total is not None:
        constants["bias"] = total.reshape(shape.groups, shape.filters)
    inputs = {"X": x.name, **({"window_sums": node.inputs[FIRST_SUM[node.op]]} if shape.window_terms else {})}
    splits = by_windows(shape, {"b": "batch", "g": "groups", "f": "filters"}, convolution)
    kernel, outputs = convolution(shape), {"Y": node.outputs[0]}
    lowered = Lowered(node, kernel, inputs, outputs, constants, scalars, splits=splits)
    if not shape.integer:
        observe_sum(lowered, graph, kernel.stages[-2], product_scales(node, graph))
    return lowered


def conv_constants(node: Node, graph: Graph, shape: ConvShape) -> tuple[dict[str, Array], dict[str, int]]:
    """Weights, requantisation and the filters' zero points, per group and filter."""
    w, filters = operand(node, graph, 1), (shape.groups, shape.filters)
    assert w.data is not None
    constants: dict[str, Array] = {}
    scalars: dict[str, int] = {}
    if not shape.integer:
        constants, scalars = finishing(node, graph, w.shape[0])
    if shape.window_terms:
        zeros = np.asarray(quantized(w).zero_point, np.int32)
        constants["w_zero"] = np.broadcast_to(zeros, (w.shape[0],))
    constants = {name: array.reshape(filters) for name, array in constants.items()}
    rows, columns = shape.kernel
    taps = w.data.reshape(*filters, shape.channels, rows, columns - shape.idle)
    weights = np.pad(taps, [(0, 0)] * 4 + [(0, shape.idle)])
    return {**constants, "W": weights}, scalars


def conv_shape(node: Node, graph: Graph, bias: bool, rounding: str) -> ConvShape:
    from epu.tir_schedules.convolution import ConvShape

    x, w, y = operand(node, graph, 0), operand(node, graph, 1), result(node, graph)
    flat = len(x.shape) == 3
    kernel, strides, dilations, pads = window(node, w.shape[2:], flat)
    groups = node.attrs.get("group", 1)
    kind = w.type
    assert isinstance(kind, Quantized)
    return ConvShape(
        batch=x.shape[0],
        groups=groups,
        channels=w.shape[1],
        filters=w.shape[0] // groups,
        height=1 if flat else x.shape[2],
        width=x.shape[-1],
        kernel=kernel,
        strides=strides,
        pads=pads,
        dilations=dilations,
        bias=bias,
        per_channel=len(kind.scale) > 1 and node.op not in INTEGER,
        rounding=rounding if isinstance(y.type, Quantized) else "exact",
        pad_value=zero_of(x) if any(pads) else 0,  # kernels that differ in nothing else are one
        dtype=dtype_of(y),
        x_dtype=dtype_of(x),
        w_dtype=dtype_of(w),
        observed=bool(covered_result(node)),
        window_terms=any(node.inputs[FIRST_SUM[node.op] :]),
        integer=node.op in INTEGER,
        addend=real_bias(node, graph) is not None,
    ).in_words()


Pair = tuple[int, int]


def window(node: Node, kernel: tuple[int, ...], flat: bool) -> tuple[Pair, Pair, Pair, tuple[int, int, int, int]]:
    """Kernel, strides, dilations and pads in two dimensions."""
    rank = 1 if flat else 2
    strides, dilations = (tuple(node.attrs.get(name) or (1,) * rank) for name in ("strides", "dilations"))
    pads = tuple(node.attrs.get("pads") or (0,) * (2 * rank))
    if flat:
        return (1, kernel[0]), (1, strides[0]), (1, dilations[0]), (0, pads[0], 0, pads[1])
    return kernel, strides, dilations, pads  # type: ignore[return-value]
