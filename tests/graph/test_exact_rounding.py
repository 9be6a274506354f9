"""The exact rounding of the integer operators against fractions: no float in the oracle."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from single_node import NO_VALUES, Q, Single, typed_graph

from epu.graph import Fixed, Graph, Node, Quantized, Tensor
from epu.reference import run_reference

scales = st.floats(2.0**-12, 2.0**8, width=32)
codes = st.integers(-128, 127)


def clipped(value: Fraction, zero: int = 0, dtype: str = "int8") -> int:
    info = np.iinfo(dtype)
    return min(max(round(value) + zero, info.min), info.max)


def real32(value: object) -> Fraction:
    return Fraction(float(np.float32(value)))  # type: ignore[arg-type]


def run(case: Single) -> int:
    graph, values = typed_graph(case, (1,))
    return int(run_reference(graph, values)["y"][0])


def one(code: int, scale: float) -> Q:
    return Q(np.array([code], np.int8), scale)


@given(codes, codes, scales, scales, scales)
def test_qlinear_add(a: int, b: int, sa: float, sb: float, sy: float) -> None:
    ratio_a, ratio_b = real32(np.float32(sa) / np.float32(sy)), real32(np.float32(sb) / np.float32(sy))
    found = run(Single("QLinearAdd", [one(a, sa), one(b, sb)], Q(NO_VALUES, sy, 3)))
    assert found == clipped(a * ratio_a + b * ratio_b, 3)


@given(codes, codes, scales, scales, scales)
def test_qlinear_mul(a: int, b: int, sa: float, sb: float, sy: float) -> None:
    scale = real32(np.float32(sa) * np.float32(sb) / np.float32(sy))
    assert run(Single("QLinearMul", [one(a, sa), one(b, sb)], Q(NO_VALUES, sy, -7))) == clipped(a * b * scale, -7)


@pytest.mark.parametrize("code", [*range(-128, 128)])
def test_a_tie_goes_to_the_even_code(code: int) -> None:
    assert run(Single("QLinearMul", [one(code, 0.5), one(1, 1.0)], Q(NO_VALUES, 1.0))) == clipped(Fraction(code, 2))


def quantize_graph(op: str, source: object, target: object) -> Graph:
    tensors = {"x": Tensor("x", (1,), source), "y": Tensor("y", (1,), target)}  # type: ignore[arg-type]
    return Graph("single", [Node("node", op, ["x"], ["y"])], tensors, ["x"], ["y"])


@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 50), scales)
def test_quantize_linear(raw: int, bits: int, scale: float) -> None:
    exact = Fraction(raw, 2**bits) / real32(scale)
    graph = quantize_graph("QuantizeLinear", Fixed(bits), Quantized("uint8", (float(np.float32(scale)),), (128,)))
    found = int(run_reference(graph, {"x": np.array([raw], np.int32)})["y"][0])
    assert found in {clipped(exact + Fraction(step, 2**24), 128, "uint8") for step in (-1, 0, 1)}


@given(codes, st.integers(-3, 50), scales)
def test_dequantize_linear(code: int, bits: int, scale: float) -> None:
    exact = (code + 5) * real32(scale) * Fraction(2) ** bits
    assume(abs(exact) < 2**40)  # formats come from the range: nothing is shifted out of 64 bits
    graph = quantize_graph("DequantizeLinear", Quantized("int8", (float(np.float32(scale)),), (-5,)), Fixed(bits))
    assert int(run_reference(graph, {"x": np.array([code], np.int8)})["y"][0]) == clipped(exact, 0, "int32")
