"""Integer operators against ONNX Runtime: equal with its rounding, one LSB at a tie with the exact one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single_node import CONTRIB, NO_VALUES, Q, Single, onnx_answer, typed_graph

from epu.passes import check_limits
from epu.reference import run_reference

SEEDS = range(8)
MOST_TIES = 2e-3


def random_scale(rng: np.random.Generator, size: Any = None) -> Any:
    return np.exp(rng.uniform(-6, 0, size)).astype(np.float32)


def operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "int8", zero: bool = False) -> Q:
    info = np.iinfo(dtype)
    raw = rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    return Q(raw, random_scale(rng), int(rng.integers(info.min, info.max, endpoint=True)) if zero else 0, dtype)


def result(scale: Any, dtype: str = "int8", zero: int = 0) -> Q:
    return Q(NO_VALUES, np.float32(scale), zero, dtype)


def matmul(rng: np.random.Generator) -> Single:
    a, b = operand(rng, (2, 9, 64)), operand(rng, (2, 64, 31))
    return Single("QLinearMatMul", [a, b], result(a.scale * b.scale * 701.7))


def matmul_columns(rng: np.random.Generator) -> Single:
    a, b = operand(rng, (50, 33)), operand(rng, (33, 17))
    b = Q(b.raw, random_scale(rng, 17), np.zeros(17, np.int8), axis=1)
    return Single("QLinearMatMul", [a, b], result(a.scale * np.median(b.scale) * 300))


def matmul_unsigned(rng: np.random.Generator) -> Single:
    a, b = operand(rng, (40, 24), "uint8", zero=True), operand(rng, (24, 24), "uint8", zero=True)
    return Single("QLinearMatMul", [a, b], result(a.scale * b.scale * 401.9, "uint8", 131))


def gemm(rng: np.random.Generator) -> Single:
    a, b = operand(rng, (30, 40)), operand(rng, (20, 40))
    bias = rng.integers(-(2**15), 2**15, 20).astype(np.int32)
    attrs = {"transB": 1, "alpha": 0.7}
    return Single("QGemm", [a, b], result(a.scale * b.scale * 301.1), attrs, "01by", bias, CONTRIB)


def conv(rng: np.random.Generator) -> Single:
    x, w = operand(rng, (2, 4, 9, 7)), operand(rng, (6, 4, 3, 3))
    w = Q(w.raw, random_scale(rng, 6), np.zeros(6, np.int8), axis=0)
    bias = rng.integers(-(2**14), 2**14, 6).astype(np.int32)
    attrs = {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2], "group": 1}
    return Single("QLinearConv", [x, w], result(x.scale * np.median(w.scale) * 300), attrs, "01yb", bias)


def conv_depthwise(rng: np.random.Generator) -> Single:
    x, w = operand(rng, (1, 8, 6, 6), "uint8", zero=True), operand(rng, (8, 1, 3, 3))
    attrs = {"strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1], "group": 8}
    return Single("QLinearConv", [x, w], result(x.scale * w.scale * 201.3, "uint8", 120), attrs, "01yb")


def add(rng: np.random.Generator) -> Single:
    a, b = operand(rng, (5, 400)), operand(rng, (5, 400))
    return Single("QLinearAdd", [a, b], result(a.scale + b.scale), domain=CONTRIB)


def add_unsigned(rng: np.random.Generator) -> Single:
    a, b = operand(rng, (5, 400), "uint8", zero=True), operand(rng, (5, 400), "uint8", zero=True)
    return Single("QLinearAdd", [a, b], result(a.scale + b.scale, "uint8", 77), domain=CONTRIB)


def add_row(rng: np.random.Generator) -> Single:
    a, b = operand(rng, (256,)), operand(rng, (9, 256))
    return Single("QLinearAdd", [a, b], result(a.scale + b.scale), domain=CONTRIB)


def add_scalar(rng: np.random.Generator) -> Single:
    a, b = operand(rng, (9, 256)), operand(rng, ())
    return Single("QLinearAdd", [a, b], result(a.scale + b.scale), domain=CONTRIB)


def mul(rng: np.random.Generator) -> Single:
    a, b = operand(rng, (5, 400)), operand(rng, (5, 400))
    return Single("QLinearMul", [a, b], result(a.scale * b.scale * 90.37), domain=CONTRIB)


def mul_unsigned(rng: np.random.Generator) -> Single:
    a, b = operand(rng, (5, 1, 40), "uint8", zero=True), operand(rng, (8, 40), "uint8", zero=True)
    return Single("QLinearMul", [a, b], result(a.scale * b.scale * 90.37, "uint8", 100), domain=CONTRIB)


def concat(rng: np.random.Generator) -> Single:
    a, b = operand(rng, (4, 256)), operand(rng, (4, 100))
    b = Q(b.raw, a.scale)
    c = operand(rng, (4, 300))
    return Single("QLinearConcat", [a, b, c], result(a.scale), {"axis": 1}, "y012", domain=CONTRIB)


def global_average(rng: np.random.Generator) -> Single:
    x = operand(rng, (2, 40, 7, 5))
    return Single("QLinearGlobalAveragePool", [x], result(x.scale * 0.2013), {"channels_last": 0}, "0y", domain=CONTRIB)


def sigmoid(rng: np.random.Generator) -> Single:
    x = operand(rng, (3, 256), "uint8", zero=True)
    return Single("QLinearSigmoid", [x], result(1 / 256, "uint8"), order="0y", domain=CONTRIB)


def leaky_relu(rng: np.random.Generator) -> Single:
    x = operand(rng, (3, 256))
    return Single("QLinearLeakyRelu", [x], result(x.scale * 1.1), {"alpha": 0.1}, "0y", domain=CONTRIB)


CASES = (
    *(matmul, matmul_columns, matmul_unsigned, gemm, conv, conv_depthwise, add, add_unsigned, add_row, add_scalar),
    *(mul, mul_unsigned, concat, global_average, sigmoid, leaky_relu),
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_ort_rounding_equals_onnx_runtime(make: Any, seed: int) -> None:
    case = make(np.random.default_rng(seed))
    expected = onnx_answer(case)
    graph, values = typed_graph(case, expected.shape)
    found = run_reference(check_limits(graph), values, "ort")["y"]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_exact_rounding_differs_by_one_at_ties(make: Any) -> None:
    differences, count = 0, 0
    for seed in SEEDS:
        case = make(np.random.default_rng(seed))
        expected = onnx_answer(case)
        graph, values = typed_graph(case, expected.shape)
        distance = np.abs(run_reference(graph, values, "exact")["y"].astype(int) - expected)
        assert distance.max() <= 1
        differences, count = differences + int(distance.sum()), count + distance.size
    assert differences <= max(MOST_TIES * count, 2)
