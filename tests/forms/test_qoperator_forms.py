"""QLinearConv, QGemm and QLinearMatMul in every form: int8 and uint8, zero points or none, scales per tensor or channel.

ONNX Runtime has no kernel for int8 activations with uint8 weights, nor for filters with different zero points: there the
operators' references judge (the QDQ forms have ONNX Runtime as their judge).
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from form_answers import check, judged_by_references
from form_models import CONTRIB, Array, Model, Net, f32, zero_point

pytest.importorskip("tvm", reason="the Relay door needs TVM")

BYTES = ("int8", "uint8")
OPERATORS = ("conv", "conv_1d", "depthwise", "gemm", "matmul", "matmul_variable")
Form = tuple[str, str, str, bool, bool, bool]  # operator, weights, activations, symmetric both, per channel


def model_of(form: Form, weight_zeros: Array | None = None) -> Model:
    op, weights, codes, symmetric, symmetric_weights, per_channel = form
    net, filters = Net(), 6
    scale = f32(np.linspace(0.01, 0.02, filters) if per_channel else 0.01)
    zeros = weight_zeros
    if zeros is None:
        zeros = zero_point(weights, symmetric_weights, filters if per_channel else None)
    x = (f32(0.02), zero_point(codes, symmetric))
    y = (f32(0.2), zero_point(codes, symmetric))
    return net.model(NODES[op](net, codes, weights, x, (scale, zeros), y), dtype=codes)


def conv(net: Net, codes: str, weights: str, x: Any, w: Any, y: Any) -> str:
    data = net.input("x", net.codes(codes, 1, 4, 7, 6))
    return net.node("QLinearConv", data, *x, net.codes(weights, 6, 4, 3, 3), *w, *y, net.bias(6), pads=[1, 2, 0, 1])


def conv_1d(net: Net, codes: str, weights: str, x: Any, w: Any, y: Any) -> str:
    data = net.input("x", net.codes(codes, 1, 4, 20))
    return net.node("QLinearConv", data, *x, net.codes(weights, 6, 4, 5), *w, *y, pads=[2, 1], strides=[2])


def depthwise(net: Net, codes: str, weights: str, x: Any, w: Any, y: Any) -> str:
    data = net.input("x", net.codes(codes, 1, 6, 7, 6))
    taps = net.codes(weights, 6, 1, 3, 3)
    return net.node("QLinearConv", data, *x, taps, *w, *y, net.bias(6), group=6, pads=[1, 1, 1, 1])


def gemm(net: Net, codes: str, weights: str, x: Any, w: Any, y: Any) -> str:
    data = net.input("x", net.codes(codes, 5, 24))
    taps = net.codes(weights, 6, 24)
    return net.node("QGemm", data, *x, taps, *w, net.bias(6), *y, transB=1, domain=CONTRIB)


def matmul(net: Net, codes: str, weights: str, x: Any, w: Any, y: Any) -> str:
    return net.node("QLinearMatMul", net.input("x", net.codes(codes, 2, 5, 24)), *x, net.codes(weights, 24, 6), *w, *y)


def matmul_variable(net: Net, codes: str, weights: str, x: Any, w: Any, y: Any) -> str:
    a, b = net.input("x", net.codes(codes, 2, 5, 24)), net.input("b", net.codes(weights, 2, 24, 6))
    return net.node("QLinearMatMul", a, *x, b, *w, *y)


NODES = {
    "conv": conv,
    "conv_1d": conv_1d,
    "depthwise": depthwise,
    "gemm": gemm,
    "matmul": matmul,
    "matmul_variable": matmul_variable,
}
FORMS: list[Form] = [
    form
    for form in product(OPERATORS, BYTES, BYTES, (True, False), (True, False), (False, True))
    if not (form[0] == "matmul_variable" and form[5])
]
FEW: list[Form] = [
    ("conv", "int8", "uint8", False, False, True),
    ("depthwise", "uint8", "uint8", False, False, False),
    ("gemm", "uint8", "uint8", False, False, True),
    ("matmul", "int8", "int8", False, False, True),
    ("matmul_variable", "int8", "uint8", False, False, False),
]


def name_of(form: Form) -> str:
    op, weights, codes, symmetric, symmetric_weights, per_channel = form
    zeros = f"{'sym' if symmetric else 'asym'}-{'sym' if symmetric_weights else 'asym'}"
    return f"{op}-{weights}-{codes}-{zeros}-{'channel' if per_channel else 'tensor'}"


def judge(form: Form, folder: Path, rounding: str) -> None:
    if form[1:3] == ("uint8", "int8"):
        judged_by_references(model_of(form), rounding)
    else:
        check(model_of(form), folder, rounding)


@pytest.mark.parametrize("form", FEW, ids=name_of)
def test_a_form_equals_onnx_runtime(form: Form, tmp_path: Path) -> None:
    judge(form, tmp_path, "ort")


@pytest.mark.slow
@pytest.mark.parametrize("rounding", ["exact", "ort"])
@pytest.mark.parametrize("form", FORMS, ids=name_of)
def test_every_form_equals_onnx_runtime(form: Form, rounding: str, tmp_path: Path) -> None:
    judge(form, tmp_path, rounding)


@pytest.mark.parametrize("op", ["conv", "depthwise", "matmul"])
def test_each_channel_may_have_its_own_zero_point(op: str) -> None:
    zeros = np.array([-90, -3, 0, 5, 40, 120], np.int8)
    judged_by_references(model_of((op, "int8", "uint8", False, False, True), zeros), "exact")
