"""QLinearMatMul and QGemm: int8 matrix products with one rounding."""

from __future__ import annotations

from itertools import product
from math import frexp, prod
from typing import Any

import numpy as np

from epu.graph import Fixed, Graph, Node, Quantized, Tensor
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
    interval,
    output_tensor,
    quantized,
    required,
    scale32,
)

ACCUMULATOR_BITS = 31


def exact_matmul(a: Ints, b: Ints) -> Ints:
    """Integer matrix product through float64, exact because every partial sum stays below 2**53."""
    depth = a.shape[-1]
    assert depth * 2**16 < 2**53
    product: Ints = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
    return product


def combined_scale(node: Node, graph: Graph) -> Array:
    """``f32(f32(f32(alpha*sa)*sb)/sy)``, one or one per column of b; not divided for a float output."""
    a, b = (scale32(quantized(required(node, graph, index))) for index in (0, 1))
    product = np.float32(node.attrs.get("alpha", 1.0)) * a * b
    out = output_tensor(node, graph)
    return np.asarray(product / scale32(quantized(out)) if isinstance(out.type, Quantized) else product, np.float32)


def matmul_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    acc = exact_matmul(centred(node, graph, values, 0), centred(node, graph, values, 1))
    plain = Node(node.name, node.op, node.inputs[:2], node.outputs)  # no bias: what follows are sums for zero points
    return [finished(plain, graph, values, acc, combined_scale(node, graph), -1, rounding)]


def integer_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    """MatMulInteger: the int32 sum itself."""
    return [exact_matmul(centred(node, graph, values, 0), centred(node, graph, values, 1)).astype(np.int32)]


def gemm_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    a, b = centred(node, graph, values, 0), centred(node, graph, values, 1)
    acc = exact_matmul(a.T if node.attrs.get("transA", 0) else a, b.T if node.attrs.get("transB", 0) else b)
    return [finished(node, graph, values, acc, combined_scale(node, graph), -1, rounding)]


def product_intervals(node: Node, graph: Graph, count: int, bias: Tensor | None) -> dict[str, Interval]:
    """Bounds of a float output: ``count`` products of any codes, and the bias."""
    ends = [x * y * count for x, y in product(*(interval(required(node, graph, index)) for index in (0, 1)))]
    scale, offset = float(node.attrs.get("alpha", 1.0)), (0.0, 0.0) if bias is None else interval(bias)
    low, high = sorted((scale * min(ends), scale * max(ends)))
    return {node.outputs[0]: (low + offset[0], high + offset[1])}


def matmul_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return product_intervals(node, graph, depth(node, graph), None)


def gemm_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    return product_intervals(node, graph, depth(node, graph), input_tensor(node, graph, 2))


def product_formats(node: Node, graph: Graph) -> dict[str, int]:
    """Fewer fraction bits than the range allows where one unit of the sums would pass 2**30."""
    out = output_tensor(node, graph).type
    if not isinstance(out, Fixed):
        return {}
    largest = max(float(each) for each in np.ravel(combined_scale(node, graph)))
    return {node.outputs[0]: min(out.frac, 30 - frexp(largest)[1])}


def depth(node: Node, graph: Graph) -> int:
    """Length of the sums of products."""
    return required(node, graph, 0).shape[-2 if node.attrs.get("transA", 0) else -1]


def matmul_macs(node: Node, graph: Graph) -> int:
    return prod(output_tensor(node, graph).shape) * depth(node, graph)


def check_columns(node: Node, graph: Graph) -> str | None:
    b = required(node, graph, 1)
    kind: Any = b.type
    column = len(b.shape) - (2 if node.attrs.get("transB", 0) else 1)
    if isinstance(kind, Quantized) and kind.axis is not None and kind.axis % len(b.shape) != column:
        return f"axis {kind.axis} of shape {b.shape}"
    return None


def check_depth(node: Node, graph: Graph) -> str | None:
    found = depth(node, graph)
    return None if found < 2 ** (ACCUMULATOR_BITS - 16) else str(found)


def check_per_tensor_a(node: Node, graph: Graph) -> str | None:
    kind = required(node, graph, 0).type
    return f"axis {kind.axis}" if isinstance(kind, Quantized) and kind.axis is not None else None


def check_two_dimensions(node: Node, graph: Graph) -> str | None:
    shapes = [required(node, graph, index).shape for index in (0, 1)]
    return None if all(len(shape) == 2 for shape in shapes) else str(shapes)


def check_matrix(node: Node, graph: Graph) -> str | None:
    shapes = [required(node, graph, index).shape for index in (0, 1)]
    return None if all(len(shape) >= 2 for shape in shapes) else str(shapes)


BYTES = int8_inputs(0, 1)
PRODUCT_LIMITS = (
    Limit("a has one scale and zero point", check_per_tensor_a),
    Limit("b has one scale and zero point, or one per column", check_columns),
    Limit("the sums have fewer than 32768 products", check_depth),
)

MATRICES = Limit("a and b have at least two dimensions", check_matrix)

QLINEAR_MATMUL = Operator(
    name="QLinearMatMul",
    family="matmul",
    limits=(BYTES, RESULT, *PRODUCT_LIMITS, MATRICES),
    reference=matmul_reference,
    intervals=matmul_intervals,
    formats=product_formats,
    macs=matmul_macs,
)
QGEMM = Operator(
    name="QGemm",
    family="matmul",
    limits=(BYTES, RESULT, BIAS, *PRODUCT_LIMITS, Limit("a and b have two dimensions", check_two_dimensions)),
    reference=gemm_reference,
    intervals=gemm_intervals,
    formats=product_formats,
    macs=matmul_macs,
)
MATMUL_INTEGER = Operator(
    name="MatMulInteger",
    family="matmul",
    limits=(BYTES, *PRODUCT_LIMITS, MATRICES),
    reference=integer_reference,
    macs=matmul_macs,
)
ROWS = (QLINEAR_MATMUL, QGEMM, MATMUL_INTEGER)
