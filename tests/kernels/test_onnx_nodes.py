"""Products, places, masks and casts: one ONNX node from import to simulator, equal to golden and reference bit for bit,
and to ONNX Runtime within float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx_node import Array, check, codes, mask, real

CONV = [
    {},
    {"group": 2},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    {"auto_pad": "VALID"},
    {"pads": [1, 2, 0, 1], "dilations": [2, 1]},
]


@pytest.mark.parametrize("attrs", CONV, ids=str)
def test_conv(attrs: dict[str, Any]) -> None:
    check("Conv", [real(1, 4, 8, 9), real(6, 4 // attrs.get("group", 1), 3, 2), real(6)], (1, 2), **attrs)


@pytest.mark.parametrize("attrs", [{}, {"pads": [1, 0], "strides": [2]}, {"auto_pad": "SAME_UPPER"}], ids=str)
def test_conv_over_one_dimension(attrs: dict[str, Any]) -> None:
    check("Conv", [real(2, 4, 11), real(4, 1, 3)], (1,), group=4, **attrs)


TRANSPOSED = [
    {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"auto_pad": "VALID"},
    {"strides": [3, 2], "output_shape": [10, 8]},
    {"strides": [3, 2], "output_shape": [8, 6]},
    {"strides": [3, 2], "output_shape": [10, 8], "output_padding": [1, 1]},
    {"strides": [2, 2], "pads": [1, 0, 1, 1], "output_padding": [1, 0], "dilations": [2, 1]},
    {"strides": [3, 3]},
    {"group": 2},
]


@pytest.mark.parametrize("attrs", TRANSPOSED, ids=str)
def test_conv_transpose(attrs: dict[str, Any]) -> None:
    check("ConvTranspose", [real(1, 4, 3, 3), real(4, 2, 3, 3), real(2 * attrs.get("group", 1))], (1, 2), **attrs)


def test_conv_transpose_over_one_dimension() -> None:
    check("ConvTranspose", [real(1, 4, 7), real(4, 2, 3), real(2)], (1, 2), strides=[2], pads=[1, 0])


BIASES: dict[str, tuple[Array, tuple[int, ...]]] = {
    "columns": (real(4), (1, 2)),
    "rows": (real(5, 1), (1, 2)),
    "matrix": (real(5, 4), (1, 2)),
    "one": (np.array(2.0, np.float32), (1, 2)),
    "variable": (real(5, 4), (1,)),
    "variable columns": (real(4), ()),
}


@pytest.mark.parametrize("turned", [{"transB": 1}, {"transA": 1, "alpha": 0.5, "beta": 0.3}], ids=str)
@pytest.mark.parametrize("bias", BIASES)
def test_gemm(bias: str, turned: dict[str, Any]) -> None:
    c, constants = BIASES[bias]
    check(
        "Gemm", [real(6, 5), real(6, 4), c] if "transA" in turned else [real(5, 6), real(4, 6), c], constants, **turned
    )


STACKS = (((2, 1, 3, 4), (5, 4, 5)), ((2, 2, 2, 3, 4), (2, 1, 2, 4, 3)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)))


@pytest.mark.parametrize("constant", [(), (0,), (1,)], ids=str)
@pytest.mark.parametrize("shapes", STACKS, ids=str)
def test_matmul(shapes: tuple[tuple[int, ...], tuple[int, ...]], constant: tuple[int, ...]) -> None:
    check("MatMul", [real(*shape) for shape in shapes], constant)


@pytest.mark.parametrize("attrs", [{}, {"axis": 1, "keepdims": 0}, {"axis": -1, "select_last_index": 1}], ids=str)
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_places_of_extremes(op: str, attrs: dict[str, Any]) -> None:
    check(op, [np.round(real(3, 5, 7))], **attrs)


@pytest.mark.parametrize("op", ["Equal", "Less", "GreaterOrEqual"])
def test_a_comparison_is_an_output(op: str) -> None:
    check(op, [np.round(real(3, 5)), np.round(real(5))])


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_masks_are_inputs_and_outputs(op: str) -> None:
    check(op, [mask(3, 5), mask(5)])


def test_a_mask_that_is_an_input_chooses() -> None:
    check("Where", [mask(3, 5), real(3, 5), real(5)])


@pytest.mark.parametrize("op", ["Not", "Transpose", "Identity"])
def test_one_mask(op: str) -> None:
    check(op, [mask(3, 5)])


CASTS = {
    "mask": (mask(3, 5), "FLOAT"),
    "to mask": (np.round(real(3, 5)), "BOOL"),
    "float": (real(3, 5), "FLOAT"),
    **{dtype: (codes(dtype, 3, 5), "FLOAT") for dtype in ("int8", "uint8", "int32")},
}


@pytest.mark.parametrize("name", CASTS)
def test_cast(name: str) -> None:
    array, to = CASTS[name]
    check("Cast", [array], to=getattr(onnx.TensorProto, to))


SIZES = dict(zip("bhijklqd", (2, 3, 4, 5, 3, 6, 4, 7), strict=True))
EQUATIONS = (
    "bhqd,bhkd->bhqk",
    "bij,jk->bki",
    "bijk,bkl->bijl",
    "i,j->ij",
    "ij->i",
    "ij,kj->j",
    "bij,bjk,kl->bil",
    "ij,i",
)


@pytest.mark.parametrize("constant", [(), pytest.param((0,), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation: str, constant: tuple[int, ...]) -> None:
    terms = equation.split("->")[0].split(",")
    operands = [real(*(SIZES[label] for label in term)) for term in terms]
    check("Einsum", operands, constant if len(terms) > 1 else (), equation=equation)


@pytest.mark.parametrize("attrs", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}], ids=str)
@pytest.mark.parametrize("axis", [0, -1])
def test_cumulative_sum(axis: int, attrs: dict[str, Any]) -> None:
    check("CumSum", [real(3, 4, 5), np.array(axis, np.int64)], (1,), **attrs)
