"""MatMul and Gemm on fixed point."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Graph, Node, Tensor
from epu.lowering.lowered import Lowered, bind_arrays, operand, result
from epu.lowering.pointwise import shifted_constant
from epu.lowering.split import Ranges, Splits
from epu.operators.matmul import out_shift, product_shift
from epu.operators.row import frac, input_tensor

if TYPE_CHECKING:
    from epu.tir_schedules.wide_matmul import WideShape

Array = NDArray[Any]


def lower_wide_matmul(node: Node, graph: Graph, rounding: str) -> Lowered:
    """Batch axes broadcast; a right side without batch serves all rows of the left one."""
    from epu.tir_schedules.elementwise import collapse
    from epu.tir_schedules.wide_matmul import WideShape

    a, b = operand(node, graph, 0), operand(node, graph, 1)
    rows = a.shape if len(a.shape) > 1 else (1, *a.shape)
    columns = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    (m, k), n = rows[-2:], columns[-1]
    if prod(columns[:-2]) == 1:
        shape = WideShape((), (), (), prod(rows[:-1]), n, k)
    else:
        batch = tuple(np.broadcast_shapes(rows[:-2], columns[:-2]))
        extents, (a_axes, b_axes) = collapse(batch, [rows[:-2], columns[:-2]])
        shape = WideShape(tuple(extents), a_axes, b_axes, m, n, k)
    return _lowered(node, graph, shape, a, b)


def lower_wide_gemm(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.wide_matmul import WideShape

    a, b, c = operand(node, graph, 0), operand(node, graph, 1), input_tensor(node, graph, 2)
    (m, k), n = a.shape, result(node, graph).shape[-1]
    shape = WideShape((), (), (), m, n, k, bool(node.attrs.get("transB", 0)), c is not None)
    lowered = _lowered(node, graph, shape, a, b)
    if c is not None:
        moved = shifted_constant(node, c, frac(c) - frac(result(node, graph)))
        lowered.constants["bias"] = np.ascontiguousarray(np.broadcast_to(np.ravel(moved), (n,)))
    return lowered


def _lowered(node: Node, graph: Graph, shape: WideShape, a: Tensor, b: Tensor) -> Lowered:
    from epu.tir_schedules.wide_matmul import wide_matmul

    roles = ("input" if tensor.data is None else "constant" for tensor in (a, b))
    shape = replace(shape, **dict(zip(("a_role", "b_role"), roles)))  # type: ignore[arg-type]
    inputs, constants = bind_arrays(graph, {"A": a.name, "B": b.name})
    scalars = {"product_shift": product_shift(node, graph), "out_shift": out_shift(node, graph)}
    return Lowered(node, wide_matmul(shape), inputs, {"Y": node.outputs[0]}, constants, scalars, splits=_splits(shape))


def _splits(shape: WideShape) -> Splits:
    """Along batch, rows and columns."""
    from epu.tir_schedules.wide_matmul import wide_matmul

    axes = {**{f"b{index}": extent for index, extent in enumerate(shape.batch)}, "m": shape.m, "n": shape.n}

    def smaller(ranges: Ranges) -> WideShape:
        left = {axis: ranges[axis][1] - ranges[axis][0] if axis in ranges else extent for axis, extent in axes.items()}
        batch = tuple(left[f"b{index}"] for index in range(len(shape.batch)))
        return replace(shape, batch=batch, m=left["m"], n=left["n"])

    return Splits(axes, smaller, wide_matmul)
