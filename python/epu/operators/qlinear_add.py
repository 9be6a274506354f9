"""QLinearAdd: two int8 tensors on a common binary grid, one rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from epu.constants import parts
from epu.graph import Graph, Node, Tensor
from epu.lanes import round24, rshr, saturate
from epu.operators.float32_path import float32_path, float32_reference
from epu.operators.row import (
    INT8_OUTPUT,
    ORT,
    PER_TENSOR,
    Array,
    Limit,
    Operator,
    Values,
    int8_inputs,
    output_tensor,
    quantized,
    required,
    value,
)

GRID_DISTANCE = 28  # bits between the two multipliers that keep the sum within int64
DEEPEST_GRID = 53  # a zero point on the grid stays within int64


@dataclass(frozen=True)
class AddConstants:
    """Multipliers ``Ma, Mb`` of the common grid ``2**-shift``, zero points, and the fixed part of the ort form."""

    a: int
    b: int
    shift: int
    zero_a: int
    zero_b: int
    zero_y: int
    fixed_part: int


def exponents(node: Node, graph: Graph) -> tuple[tuple[int, int], tuple[int, int]]:
    """``parts`` of f32(sa/sy) and f32(sb/sy)."""
    a, b, y = (np.float32(quantized(t).scale[0]) for t in (*operands(node, graph), output_tensor(node, graph)))
    return parts(float(a / y)), parts(float(b / y))


def operands(node: Node, graph: Graph) -> tuple[Tensor, Tensor]:
    return required(node, graph, 0), required(node, graph, 1)


def add_constants(node: Node, graph: Graph) -> AddConstants:
    (ma, ea), (mb, eb) = exponents(node, graph)
    grid = min(ea, eb)
    a, b = ma << (ea - grid), mb << (eb - grid)
    zero_a, zero_b, zero_y = (quantized(t).zero_point[0] for t in (*operands(node, graph), output_tensor(node, graph)))
    zeros = round24_of(round24_of(zero_a * a) + round24_of(zero_b * b))
    fixed_part = round24_of((zero_y << -grid) - zeros)
    return AddConstants(a, b, -grid, zero_a, zero_b, zero_y, fixed_part)


def round24_of(number: int) -> int:
    return int(round24(np.array(number, np.int64)))


def add_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    path = float32_path(node, graph) if rounding == ORT else None
    if path is not None:
        return [float32_reference(node, graph, values, path)]
    k = add_constants(node, graph)
    a, b = value(node, values, 0), value(node, values, 1)
    dtype = quantized(output_tensor(node, graph)).dtype
    if rounding == ORT:
        total = round24(a * k.a + round24(b * k.b + k.fixed_part))
        return [saturate(rshr(total, k.shift), dtype)]
    total = (a - k.zero_a) * k.a + (b - k.zero_b) * k.b
    return [saturate(rshr(total, k.shift) + k.zero_y, dtype)]


def check_grid(node: Node, graph: Graph) -> str | None:
    (_, ea), (_, eb) = exponents(node, graph)
    return None if abs(ea - eb) <= GRID_DISTANCE else f"2**{abs(ea - eb)}"


def check_small(node: Node, graph: Graph) -> str | None:
    shifts = [-e for _, e in exponents(node, graph)]
    return None if 0 <= max(shifts) <= DEEPEST_GRID else f"2**{-max(shifts) + 24}"


ROWS = (
    Operator(
        name="QLinearAdd",
        family="elementwise",
        limits=(
            int8_inputs(0, 1),
            INT8_OUTPUT,
            PER_TENSOR,
            Limit("the input scales differ by less than 2**28", check_grid),
            Limit("input scale / output scale lies between 2**-30 and 2**24", check_small),
        ),
        reference=add_reference,
    ),
)
