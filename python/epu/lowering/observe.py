"""The float tensor between a folded group's operator and its QuantizeLinear: the integer sum that the kernel rounds.

``DQ → Conv → Q`` is one kernel; what Conv makes is its accumulator in units of ``scale(x) * scale(w)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Graph, Node, Quantized, Tensor
from epu.lowering.lowered import Lowered
from epu.operators.row import quantized, required, scale32


def covered_result(node: Node) -> str:
    """The covered tensor that the group's QuantizeLinear reads; empty where there is none, or where other nodes follow."""
    if len(node.covers) < 2:
        return ""
    (inner, _, tensors), (last, _, results) = node.covers[-2:]
    return tensors[0] if inner != last and list(results) == node.outputs else ""


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
    lowered.observed[stage] = name
    lowered.sums[name] = Tensor(name, shape, Quantized(dtype, units, (zero,) * len(units), axis))


def product_scales(node: Node, graph: Graph) -> NDArray[Any]:
    """Units of a sum of products: ``f32(alpha * sa * sb)``, one, or one per channel of b."""
    a, b = (scale32(quantized(required(node, graph, index))) for index in (0, 1))
    return np.asarray(np.float32(node.attrs.get("alpha", 1.0)) * a * b, np.float32)
