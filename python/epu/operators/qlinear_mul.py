"""QLinearMul: the product of two int8 tensors, one rounding."""

from __future__ import annotations

from epu.graph import Graph, Node
from epu.operators.float32_path import float32_path, float32_reference
from epu.operators.qlinear_matmul import combined_scale
from epu.operators.requantise import requantise
from epu.operators.row import INT8_OUTPUT, ORT, PER_TENSOR, Array, Operator, Values, centred, int8_inputs


def mul_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    path = float32_path(node, graph) if rounding == ORT else None
    if path is not None:
        return [float32_reference(node, graph, values, path)]
    product = centred(node, graph, values, 0) * centred(node, graph, values, 1)
    return [requantise(node, graph, product, combined_scale(node, graph), 0, rounding)]


ROWS = (
    Operator(
        name="QLinearMul",
        family="elementwise",
        limits=(int8_inputs(0, 1), INT8_OUTPUT, PER_TENSOR),
        reference=mul_reference,
    ),
)
