"""MatMul and Gemm on fixed point: products of 32 x 32 bits, sums in 64 bits."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from epu.constants import ceil_log2
from epu.graph import Float, Graph, Node
from epu.lanes import mulr, rshr, saturate
from epu.operators.qlinear_matmul import check_two_dimensions
from epu.operators.row import (
    FLOAT_TENSORS,
    Array,
    Interval,
    Ints,
    Limit,
    Operator,
    Values,
    frac,
    input_tensor,
    interval,
    is_constant,
    output_tensor,
    required,
    value,
)

LONGEST_SUM = 1 << 20


def depth(node: Node, graph: Graph) -> int:
    """Length of the sums of products."""
    shape = required(node, graph, 0).shape
    return shape[-2 if node.attrs.get("transA", 0) else -1]


def product_shift(node: Node, graph: Graph) -> int:
    """sigma: K products of 2**62, each shifted by it, add up to at most 2**62."""
    return ceil_log2(depth(node, graph))


def out_shift(node: Node, graph: Graph) -> int:
    a, b = (frac(required(node, graph, index)) for index in (0, 1))
    return a + b - product_shift(node, graph) - frac(output_tensor(node, graph))


def wide_product(a: Ints, b: Ints, shift: int) -> Ints:
    """Sums over the last axis of a and the one before the last of b; each product rounded to ``shift`` bits fewer."""
    total = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), np.int64)
    for index in range(a.shape[-1]):
        total += mulr(a[..., index, None], b[..., index, None, :], shift)
    return total


def matmul_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    a, b = value(node, values, 0), value(node, values, 1)
    total = wide_product(np.atleast_2d(a), b[:, None] if b.ndim == 1 else b, product_shift(node, graph))
    shape = output_tensor(node, graph).shape
    return [saturate(rshr(total.reshape(shape), out_shift(node, graph)), "int32")]


def gemm_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    a, b = value(node, values, 0), value(node, values, 1)
    total = wide_product(a, b.T if node.attrs.get("transB", 0) else b, product_shift(node, graph))
    rounded = rshr(total, out_shift(node, graph))
    bias = input_tensor(node, graph, 2)
    if bias is not None:
        rounded = rounded + rshr(value(node, values, 2), frac(bias) - frac(output_tensor(node, graph)))
    return [saturate(rounded, "int32")]


def matmul_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    low, high = _sum_ends(node, graph)
    bias = input_tensor(node, graph, 2)
    offset = interval(bias) if bias is not None else (0.0, 0.0)
    return {node.outputs[0]: (low + offset[0], high + offset[1])}


def _sum_ends(node: Node, graph: Graph) -> Interval:
    """Of a constant right side the sums of its columns, else as many of the largest product as there are."""
    a, b = interval(required(node, graph, 0)), required(node, graph, 1)
    if b.data is None or not isinstance(b.type, Float):
        ends = [x * y * depth(node, graph) for x, y in product(a, interval(b))]
        return min(ends), max(ends)
    inner = -1 if node.attrs.get("transB", 0) or b.data.ndim == 1 else -2
    data = np.asarray(b.data, np.float64)
    up, down = np.maximum(data, 0.0).sum(axis=inner), np.minimum(data, 0.0).sum(axis=inner)
    return float((up * a[0] + down * a[1]).min()), float((up * a[1] + down * a[0]).max())


def check_depth(node: Node, graph: Graph) -> str | None:
    found = depth(node, graph)
    return None if 0 < found <= LONGEST_SUM else str(found)


def check_plain(node: Node, graph: Graph) -> str | None:
    plain = {"alpha": 1.0, "beta": 1.0, "transA": 0}
    return next((f"{n} {node.attrs[n]}" for n, only in plain.items() if node.attrs.get(n, only) != only), None)


def check_column_bias(node: Node, graph: Graph) -> str | None:
    """One constant value, or one per column."""
    bias = input_tensor(node, graph, 2)
    if bias is None:
        return None
    columns = output_tensor(node, graph).shape[-1]
    fits = is_constant(bias) and bias.shape[-1:] in ((), (1,), (columns,)) and prod(bias.shape[:-1]) == 1
    return None if fits else f"shape {bias.shape} of '{bias.name}'"


DEPTH = Limit("the sums have 1 to 2**20 products", check_depth)
ROWS = (
    Operator("MatMul", "wide_matmul", (FLOAT_TENSORS, DEPTH), matmul_reference, matmul_intervals),
    Operator(
        name="Gemm",
        family="wide_matmul",
        limits=(
            FLOAT_TENSORS,
            DEPTH,
            Limit("a and b have two dimensions", check_two_dimensions),
            Limit("alpha and beta are 1, a is not transposed", check_plain),
            Limit("c is one constant value or one per column", check_column_bias),
        ),
        reference=gemm_reference,
        intervals=matmul_intervals,
    ),
)
