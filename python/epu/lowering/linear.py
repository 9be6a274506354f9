"""QLinearMatMul, QGemm, QLinearConv."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.constants import multiplier, multipliers
from epu.errors import UnsupportedNode
from epu.graph import Graph, Node, Quantized, Tensor
from epu.lowering.lowered import Lowered, dtype_of, operand, result, zero_of
from epu.lowering.observe import covered_result, observe_sum, product_scales
from epu.lowering.split import by_fields, by_windows
from epu.operators.qlinear_matmul import combined_scale
from epu.operators.row import input_tensor, quantized

Array = NDArray[Any]


def lower_matmul(node: Node, graph: Graph, rounding: str) -> Lowered:
    """QLinearMatMul: a constant right side serves all rows; two variable sides are a batch of products."""
    a, b = operand(node, graph, 0), operand(node, graph, 1)
    if b.data is not None and b.data.ndim == 2:
        return _dense(node, graph, rounding, a, np.ascontiguousarray(b.data.T), None)
    return _batched(node, graph, rounding, a, b)


def lower_gemm(node: Node, graph: Graph, rounding: str) -> Lowered:
    a, b, c = operand(node, graph, 0), operand(node, graph, 1), input_tensor(node, graph, 2)
    if b.data is None or node.attrs.get("transA", 0):
        raise UnsupportedNode(
            f"ONNX node '{node.name}' (QGemm): b must be constant and transA 0. Transpose a before it, or use QLinearMatMul."
        )
    if c is not None and (c.data is None or c.data.size not in (1, b.shape[0 if node.attrs.get("transB", 0) else 1])):
        raise UnsupportedNode(
            f"ONNX node '{node.name}' (QGemm): c must be one constant value or one per column, found shape {c.shape}. "
            "Add it in a node of its own."
        )
    weights = b.data if node.attrs.get("transB", 0) else b.data.T
    return _dense(node, graph, rounding, a, np.ascontiguousarray(weights), None if c is None else c.data)


def _dense(node: Node, graph: Graph, rounding: str, a: Tensor, weights: Array, bias: Array | None) -> Lowered:
    """Rows of ``a`` times constant weights [n, k]."""
    from epu.tir_schedules.matmul import MatmulShape, matmul

    columns, depth = weights.shape
    total = folded_bias(node, graph, weights.astype(np.int64).sum(axis=1), bias, columns)
    scales = np.ravel(combined_scale(node, graph))
    shape = MatmulShape(
        1,
        prod(a.shape[:-1]),
        columns,
        depth,
        transposed=True,
        bias=total is not None,
        per_column=scales.size > 1,
        rounding=rounding,
        a_dtype=dtype_of(a),
        b_dtype=str(weights.dtype),
        dtype=dtype_of(result(node, graph)),
        observed=bool(covered_result(node)),
    )
    constants, scalars = requantisation(scales, zero_of(result(node, graph)))
    constants["B"] = weights
    if total is not None:
        constants["bias"] = total
    splits = by_fields(shape, {"m": "m", "n": "n"}, matmul)
    lowered = Lowered(node, matmul(shape), {"A": a.name}, {"Y": node.outputs[0]}, constants, scalars, splits=splits)
    observe_sum(lowered, graph, "acc" if total is None else "total", product_scales(node, graph))
    return lowered


def _batched(node: Node, graph: Graph, rounding: str, a: Tensor, b: Tensor) -> Lowered:
    from epu.tir_schedules.matmul import MatmulShape, matmul

    batch = prod(a.shape[:-2])
    if a.shape[:-2] != b.shape[:-2] and batch * prod(b.shape[:-2]) != batch:
        raise UnsupportedNode(
            f"ONNX node '{node.name}' (QLinearMatMul): leading dimensions of a and b must be equal, found {a.shape} and "
            f"{b.shape}. Expand the smaller operand before the node."
        )
    if zero_of(a) or zero_of(b):
        raise UnsupportedNode(
            f"ONNX node '{node.name}' (QLinearMatMul): products of two variable tensors need zero point 0, found "
            f"{zero_of(a)} and {zero_of(b)}. Quantise symmetrically."
        )
    shared = prod(b.shape[:-2]) == 1
    batch, rows = (1, batch * a.shape[-2]) if shared else (batch, a.shape[-2])
    columns, depth = b.shape[-1], b.shape[-2]
    scales = np.ravel(combined_scale(node, graph))
    types = {"a_dtype": dtype_of(a), "b_dtype": dtype_of(b), "dtype": dtype_of(result(node, graph))}
    seen = bool(covered_result(node))
    shape = MatmulShape(batch, rows, columns, depth, False, False, scales.size > 1, rounding, **types, observed=seen)
    constants, scalars = requantisation(scales, zero_of(result(node, graph)))
    inputs = {"A": a.name, "B": b.name}
    for param, tensor in (("A", a), ("B", b)):
        if tensor.data is not None:
            constants[param] = tensor.data
            del inputs[param]
    splits = by_fields(shape, {"b": "batch", "m": "m", "n": "n"}, matmul)
    lowered = Lowered(node, matmul(shape), inputs, {"Y": node.outputs[0]}, constants, scalars, splits=splits)
    observe_sum(lowered, graph, "acc", product_scales(node, graph))
    return lowered


def requantisation(scales: Array, zero_point: int) -> tuple[dict[str, Array], dict[str, int]]:
    """Factor and shift as scalars for one scale, as int32 vectors for several; the zero point."""
    if scales.size == 1:
        factor, shift = multiplier(float(scales[0]))
        return {}, {"factor": factor, "shift": shift, "zero_point": zero_point}
    factors, shifts = multipliers(scales)
    return {"factor": factors.astype(np.int32), "shift": shifts.astype(np.int32)}, {"zero_point": zero_point}


def folded_bias(node: Node, graph: Graph, weight_sums: Array, bias: Array | None, count: int) -> Array | None:
    """``c - za * sum(w)`` as int32, None where nothing is added. Refuses asymmetric weights."""
    weights = quantized(operand(node, graph, 1))
    if any(weights.zero_point):
        raise UnsupportedNode(
            f"ONNX node '{node.name}' ({node.op}): the weights' zero point must be 0, found {weights.zero_point[0]}. "
            "Quantise weights symmetrically."
        )
    zero = zero_of(operand(node, graph, 0))
    if bias is None and not zero:
        return None
    total = np.zeros(count, np.int64) if bias is None else np.broadcast_to(np.ravel(bias), (count,)).astype(np.int64)
    total = total - zero * weight_sums
    outside = total[(total < -(2**31)) | (total >= 2**31)]
    if outside.size:
        raise UnsupportedNode(
            f"ONNX node '{node.name}' ({node.op}): bias with the input's zero point must fit int32, found {outside[0]}. "
            "Quantise the weights of that channel with a larger scale."
        )
    return total.astype(np.int32)


def lower_conv(node: Node, graph: Graph, rounding: str) -> Lowered:
    """QLinearConv over NCHW; one spatial dimension is a height of 1."""
    from epu.tir_schedules.convolution import convolution

    x, w = operand(node, graph, 0), operand(node, graph, 1)
    if w.data is None:
        raise UnsupportedNode(
            f"ONNX node '{node.name}' (QLinearConv): the weights must be constant, found the variable '{w.name}'. "
            "Store them as an initializer."
        )
    bias = input_tensor(node, graph, 2)
    weights = w.data.reshape(w.shape[0], w.shape[1], -1)
    sums = weights.astype(np.int64).sum(axis=(1, 2))
    total = folded_bias(node, graph, sums, None if bias is None else bias.data, w.shape[0])
    if total is not None and not total.any() and bias is None:
        total = None
    shape = conv_shape(node, graph, total is not None, rounding)
    constants, scalars = requantisation(np.ravel(combined_scale(node, graph)), zero_of(result(node, graph)))
    constants["W"] = w.data.reshape(shape.groups, shape.filters, shape.channels, *shape.kernel)
    if total is not None:
        constants["bias"] = total.reshape(shape.groups, shape.filters)
    constants = {
        name: array.reshape(shape.groups, -1) if name in ("factor", "shift") else array
        for name, array in constants.items()
    }
    splits = by_windows(shape, {"b": "batch", "g": "groups", "f": "filters"}, convolution)
    kernel, outputs = convolution(shape), {"Y": node.outputs[0]}
    lowered = Lowered(node, kernel, {"X": x.name}, outputs, constants, scalars, splits=splits)
    observe_sum(lowered, graph, "acc" if total is None else "total", product_scales(node, graph))
    return lowered


def conv_shape(node: Node, graph: Graph, bias: bool, rounding: str) -> Any:
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
        per_channel=len(kind.scale) > 1,
        rounding=rounding,
        pad_value=zero_of(x) if any(pads) else 0,  # kernels that differ in nothing else are one
        dtype=dtype_of(y),
        x_dtype=dtype_of(x),
        w_dtype=dtype_of(w),
        observed=bool(covered_result(node)),
    )


Pair = tuple[int, int]


def window(node: Node, kernel: tuple[int, ...], flat: bool) -> tuple[Pair, Pair, Pair, tuple[int, int, int, int]]:
    """Kernel, strides, dilations and pads in two dimensions."""
    rank = 1 if flat else 2
    strides, dilations = (tuple(node.attrs.get(name) or (1,) * rank) for name in ("strides", "dilations"))
    pads = tuple(node.attrs.get("pads") or (0,) * (2 * rank))
    if flat:
        return (1, kernel[0]), (1, strides[0]), (1, dilations[0]), (0, pads[0], 0, pads[1])
    return kernel, strides, dilations, pads  # type: ignore[return-value]
