"""QLinearMatMul, QGemm, MatMulInteger: products of matrices of codes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epu.errors import UnsupportedNode
from epu.graph import Graph, Node, Quantized, Tensor
from epu.lowering.linear import INTEGER, finishing, integer_bias, real_bias
from epu.lowering.lowered import Lowered, bind_arrays, dtype_of, operand, result, zero_of
from epu.lowering.observe import covered_result, observe_sum, product_scales
from epu.lowering.requantisation import folded_bias
from epu.lowering.split import by_fields
from epu.operators.qlinear_matmul import combined_scale
from epu.operators.row import input_tensor, quantized
from epu.passes.expand_zero_points import FIRST_SUM

if TYPE_CHECKING:
    from epu.tir_schedules.matmul import MatmulShape

Array = NDArray[Any]


@dataclass(frozen=True)
class Form:
    """Extents of a batch of products; ``transposed``: b is [n, k], shared by the batch; ``weights``: b, constant, so."""

    batch: int
    m: int
    n: int
    k: int
    transposed: bool
    weights: Array | None = None


def lower_matmul(node: Node, graph: Graph, rounding: str) -> Lowered:
    """QLinearMatMul and MatMulInteger: a constant right side serves all rows; others are a batch of products."""
    a, b = operand(node, graph, 0), operand(node, graph, 1)
    if b.data is not None and b.data.ndim == 2:
        return _lowered(node, graph, rounding, _dense(a, b.data.T), None)
    return _lowered(node, graph, rounding, _batched(node, a, b), None)


def lower_gemm(node: Node, graph: Graph, rounding: str) -> Lowered:
    a, b, c = operand(node, graph, 0), operand(node, graph, 1), input_tensor(node, graph, 2)
    turned = bool(node.attrs.get("transB", 0))
    columns = b.shape[0 if turned else 1]
    if node.attrs.get("transA", 0):
        raise UnsupportedNode(f"ONNX node '{node.name}' (QGemm): transA must be 0, found 1. Transpose a before it.")
    if c is not None and (c.data is None or c.data.size not in (1, columns)):
        raise UnsupportedNode(
            f"ONNX node '{node.name}' (QGemm): c must be one constant value or one per column, found shape {c.shape}. "
            "Add it in a node of its own."
        )
    if b.data is not None:
        form = _dense(a, b.data if turned else b.data.T)
    else:
        form = Form(1, a.shape[0], columns, a.shape[1], turned)
    return _lowered(node, graph, rounding, form, integer_bias(node, graph))


def _dense(a: Tensor, weights: Array) -> Form:
    """Rows of ``a`` times constant weights [n, k]."""
    columns, depth = weights.shape
    return Form(1, prod(a.shape[:-1]), columns, depth, True, np.ascontiguousarray(weights))


def _batched(node: Node, a: Tensor, b: Tensor) -> Form:
    batch, rows, columns = prod(a.shape[:-2]), a.shape[-2], b.shape[-1]
    if a.shape[:-2] != b.shape[:-2] and prod(b.shape[:-2]) != 1:
        raise UnsupportedNode(
            f"ONNX node '{node.name}' ({node.op}): leading dimensions of a and b must be equal, found {a.shape} and "
            f"{b.shape}. Expand the smaller operand before the node."
        )
    if prod(b.shape[:-2]) == 1:
        batch, rows = 1, batch * rows
    return Form(batch, rows, columns, b.shape[-2], False)


def _lowered(node: Node, graph: Graph, rounding: str, form: Form, bias: Array | None) -> Lowered:
    from epu.tir_schedules.matmul import matmul

    total, is_integer = _added(node, graph, form, bias), node.op in INTEGER
    scales = np.zeros(1) if is_integer else np.ravel(combined_scale(node, graph))
    shape = _shape(node, graph, form, total is not None, scales.size > 1, rounding)
    names = {"A": node.inputs[0], "B": node.inputs[1], **_sums(node)}
    inputs, constants = bind_arrays(graph, names)
    scalars: dict[str, int] = {}
    if not is_integer:
        more, scalars = finishing(node, graph, form.n)
        constants |= more
    constants |= {} if form.weights is None else {"B": form.weights}
    constants |= {} if total is None else {"bias": total}
    if shape.row_terms:
        constants["b_zero"] = np.broadcast_to(np.asarray(_zeros(node, graph, 1), np.int32), (form.n,))
    if shape.column_terms:
        scalars["a_zero"] = zero_of(operand(node, graph, 0))
    axes = {"m": "m", "n": "n"} if form.transposed else {"b": "batch", "m": "m", "n": "n"}
    splits, kernel = by_fields(shape, axes, matmul), matmul(shape)
    lowered = Lowered(node, kernel, inputs, {"Y": node.outputs[0]}, constants, scalars, splits=splits)
    if not is_integer:
        observe_sum(lowered, graph, kernel.stages[-2], product_scales(node, graph))
    return lowered


def _sums(node: Node) -> dict[str, str]:
    """Parameter → tensor of the sums that zero points need."""
    given = dict(zip(("row_sums", "column_sums"), node.inputs[FIRST_SUM[node.op] :]))
    return {param: name for param, name in given.items() if name}


def _zeros(node: Node, graph: Graph, index: int) -> tuple[int, ...]:
    return quantized(operand(node, graph, index)).zero_point


def _added(node: Node, graph: Graph, form: Form, bias: Array | None) -> Array | None:
    """What is the same for every row: the bias and the terms of zero points that are known."""
    left, right = zero_of(operand(node, graph, 0)), zero_of(operand(node, graph, 1))
    if form.weights is not None:
        term = -left * form.weights.astype(np.int64).sum(axis=1)
    else:
        term = np.full(form.n, -form.k * left * right, np.int64)
    return folded_bias(node, term, bias)


def _shape(node: Node, graph: Graph, form: Form, bias: bool, per_column: bool, rounding: str) -> MatmulShape:
    from epu.tir_schedules.matmul import MatmulShape

    sums, y = _sums(node), result(node, graph)
    return MatmulShape(
        form.batch,
        form.m,
        form.n,
        form.k,
        transposed=form.transposed,
        bias=bias,
        per_column=per_column,
        rounding=rounding if isinstance(y.type, Quantized) else "exact",
        a_dtype=dtype_of(operand(node, graph, 0)),
        b_dtype=dtype_of(operand(node, graph, 1)),
        dtype=dtype_of(y),
        observed=bool(covered_result(node)),
        row_terms="row_sums" in sums,
        column_terms="column_sums" in sums,
        integer=node.op in INTEGER,
        addend=real_bias(node, graph) is not None,
    )
