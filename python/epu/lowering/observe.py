"""The float tensor between a folded group's operator and its QuantizeLinear: the integer sum that the kernel rounds.

``DQ → Conv → Q`` is one kernel; what Conv makes is its accumulator in units of ``scale(x) * scale(w)``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Graph, Node, Quantized, Tensor
from epu.lowering.lowered import Lowered
from epu.operators.row import quantized, required, scale32
from epu.operators.selection import depth_to_space


def covered_result(node: Node) -> str:
    """The covered tensor that the group's QuantizeLinear reads; empty where there is none."""
    if len(node.covers) < 2 or node.covers[-1][1] != "QuantizeLinear":
        return ""
    (inner, _, tensors), (last, _, _) = node.covers[-2:]
    return tensors[0] if inner != last else ""


def observe_sum(
    lowered: Lowered, graph: Graph, stage: str, scales: NDArray[Any] | float, *, dtype: str = "int32", zero: int = 0
) -> None:
    """The covered result is ``stage``, in units of one scale, or of one per position of the output's channel axis.

    The channel axis is the second one of a convolution, the last one of a product of matrices.
    """
    node = lowered.node
    name = covered_result(node)
    if not name:
        return
    shape = graph.tensors[node.outputs[0]].shape
    units = tuple(float(each) for each in np.ravel(np.asarray(scales, np.float32)))
    axis = None if len(units) == 1 else 1 if "Conv" in node.op else len(shape) - 1
    kind = Quantized(dtype, units, (zero,) * len(units), axis)
    if node.covers[-1][2] == tuple(node.outputs):
        lowered.observed[stage] = name
        lowered.sums[name] = Tensor(name, shape, kind)
    else:
        _observe_moved(lowered, graph, stage, name, Tensor(f"{node.outputs[0]}:sum", shape, kind))


def _observe_moved(lowered: Lowered, graph: Graph, stage: str, name: str, own: Tensor) -> None:
    """The group ends with a DepthToSpace (``expand_conv_transpose``): the covered result is the stage's sums, moved by it."""
    (mover,), kind = graph.consumers(lowered.node.outputs[0]), quantized(own)
    seen, order = depth_to_space(mover, graph)
    per_filter = own.shape[1] // graph.tensors[mover.outputs[0]].shape[1]
    if kind.axis is not None:
        moved = replace(kind, scale=kind.scale[::per_filter], zero_point=kind.zero_point[::per_filter])
    else:
        moved = kind
    lowered.observed[stage] = own.name
    lowered.sums |= {own.name: own, name: Tensor(name, graph.tensors[mover.outputs[0]].shape, moved)}
    lowered.moved[name] = (own.name, seen, order)


def product_scales(node: Node, graph: Graph) -> NDArray[Any]:
    """Units of a sum of products: ``f32(alpha * sa * sb)``, one, or one per channel of b."""
    a, b = (scale32(quantized(required(node, graph, index))) for index in (0, 1))
    return np.asarray(np.float32(node.attrs.get("alpha", 1.0)) * a * b, np.float32)
