"""Add and Mul between DequantizeLinear and QuantizeLinear as ONNX Runtime computes them: float32 after each step.

``rounding="ort"`` of a folded group; docs/arithmetic.md, "Groups in QDQ form".
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from epu.constants import integer_range, nearest, parts
from epu.graph import Graph, Node, Quantized, Tensor
from epu.lanes import round24, rshr, saturate
from epu.operators.row import Array, Ints, Values, output_tensor, quantized, required, value

WORD, INVERSE = 35, 27  # bits of a value and of the inverse scale, whose product fits int64
FRACTION = 25  # bits of the first quotient, and of its correction
LEAST, MOST = (
    Fraction(1, 2),
    2**10,
)  # the largest quotient, so that the value keeps its 24 bits where it rounds to a code


@dataclass(frozen=True)
class Float32Path:
    """``S = round24(round24((a - zero_a) * factor_a) * 2**left_a ∘ the same of b)`` is the float32 result in units of
    ``2**exponent``, ``X = rshr(S, drop)`` in a word.

    Its quotient by ``divisor``, the mantissa of the output's scale, with 25 fraction bits: ``Q = mulr(X, inverse, first)``,
    then with 50: ``(Q << 25) + mulr((X << left) - (Q * divisor << right), inverse, second)``. That is near enough to the
    exact quotient for ``round24`` to be float32's division.
    """

    factors: tuple[int, int]
    lefts: tuple[int, int]
    zeros: tuple[int, int]
    exponent: int
    drop: int
    inverse: int
    divisor: int
    first: int
    left: int
    right: int
    second: int
    zero: int


def float32_path(node: Node, graph: Graph) -> Float32Path | None:
    """The constants of a QDQ group; None for a QLinear node, or where 64 bits do not hold the float32 values."""
    if not _is_group(node):
        return None
    a, b, y = (quantized(each) for each in (*operands(node, graph), output_tensor(node, graph)))
    (ma, ea), (mb, eb) = parts(a.scale[0]), parts(b.scale[0])
    if node.op == "QLinearMul":
        exponent, lefts = ea + eb, (0, 0)
        largest = _most(a) * ma * _most(b) * mb
    else:
        exponent = min(ea, eb)
        lefts = (ea - exponent, eb - exponent)
        largest = (_most(a) * ma << lefts[0]) + (_most(b) * mb << lefts[1])
    my, ey = parts(y.scale[0])
    quotient = largest * Fraction(2) ** (exponent - ey) / my
    if largest.bit_length() > 62 or not LEAST <= quotient <= MOST:
        return None
    drop = max(0, largest.bit_length() - WORD)
    k = INVERSE + my.bit_length() - 1
    grid = drop + exponent - ey + FRACTION
    return Float32Path(
        factors=(ma, mb),
        lefts=lefts,
        zeros=(a.zero_point[0], b.zero_point[0]),
        exponent=exponent,
        drop=drop,
        inverse=nearest(Fraction(2) ** k / my),
        divisor=my,
        first=k - grid,
        left=max(grid, 0),
        right=max(-grid, 0),
        second=k - FRACTION + max(-grid, 0),
        zero=y.zero_point[0],
    )


def operands(node: Node, graph: Graph) -> tuple[Tensor, Tensor]:
    return required(node, graph, 0), required(node, graph, 1)


def float32_reference(node: Node, graph: Graph, values: Values, path: Float32Path) -> Array:
    """The codes of output 0."""
    a, b = (_real(value(node, values, index), path, index) for index in (0, 1))
    result = round24(a * b if node.op == "QLinearMul" else a + b)
    word = rshr(result, path.drop)
    coarse = rshr(word * path.inverse, path.first)
    rest = (word << np.int64(path.left)) - (coarse * path.divisor << np.int64(path.right))
    quotient = round24((coarse << np.int64(FRACTION)) + rshr(rest * path.inverse, path.second))
    return saturate(rshr(quotient, 2 * FRACTION) + path.zero, quantized(output_tensor(node, graph)).dtype)


def _real(raw: Ints, path: Float32Path, index: int) -> Ints:
    """DequantizeLinear of one operand on the common grid."""
    found: Ints = round24((raw - path.zeros[index]) * path.factors[index]) << np.int64(path.lefts[index])
    return found


def _is_group(node: Node) -> bool:
    """Whether the node stands for DequantizeLinear, an operator and QuantizeLinear of the ONNX model."""
    return len(node.covers) > 2 and node.covers[-2][0] != node.covers[-1][0]


def _most(kind: Quantized) -> int:
    """The largest ``|q - zero_point|``."""
    low, high = integer_range(kind.dtype)
    return max(abs(low - kind.zero_point[0]), abs(high - kind.zero_point[0]))
