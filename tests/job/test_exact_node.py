"""float64 as the arbiter: what it computes, what it leaves alone, and that a wrong ISS is not excused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from epu.exact_functions import float64_function
from epu.exact_node import ExactNodes, ort_is_further, psnr_against


def mean_model() -> ModelProto:
    """x → GlobalAveragePool → m, and q → a contrib node → r."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["m"], "mean"),
        helper.make_node("QLinearAdd", ["q"], ["r"], "add", domain="com.microsoft"),
        helper.make_node("NoSuchOperator", ["x"], ["u"], "unknown"),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 2])]
    return helper.make_model(helper.make_graph(nodes, "g", values, []), opset_imports=[helper.make_opsetid("", 13)])


X = np.array([[[[1e8, 1.0], [-1e8, 1.0]]]], np.float32)


def test_a_float_node_is_computed_in_float64() -> None:
    exact = ExactNodes(mean_model(), {"x": X}).value("m")
    assert exact is not None
    assert exact.dtype == np.float64
    assert exact.item() == 0.5  # float32, one after another: ((1e8 + 1) - 1e8 + 1) / 4 = 0.25


def test_nodes_without_a_float64_form_have_no_arbiter() -> None:
    nodes = ExactNodes(mean_model(), {"x": X, "q": np.zeros(1, np.int8)})
    assert nodes.value("r") is None
    assert nodes.value("u") is None


def test_only_the_nearer_one_is_right() -> None:
    exact, near, far = np.array([1.0]), np.array([1.001]), np.array([1.01])
    assert ort_is_further(far, near, exact)
    assert not ort_is_further(near, far, exact)
    assert not ort_is_further(near, near, exact)
    assert psnr_against(exact, near) > psnr_against(exact, far)


FUNCTIONS: list[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any]]] = [
    ("AveragePool", ((2, 3, 9, 8),), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    ("AveragePool", ((2, 3, 9),), {"kernel_shape": [3], "pads": [1, 1], "count_include_pad": 1}),
    ("MaxPool", ((1, 2, 9, 8),), {"kernel_shape": [2, 3], "dilations": [2, 1], "pads": [1, 1, 0, 1]}),
    (
        "ConvTranspose",
        ((2, 5, 7, 6), (5, 4, 3, 2), (4,)),
        {"strides": [2, 1], "pads": [1, 0, 0, 1], "output_padding": [1, 0]},
    ),
    ("ConvTranspose", ((1, 3, 5), (3, 2, 3)), {"strides": [3], "dilations": [2]}),
    ("Sigmoid", ((4, 5),), {}),
    ("LayerNormalization", ((3, 4, 6), (6,), (6,)), {"epsilon": 1e-3}),
    ("LayerNormalization", ((3, 4, 6), (4, 6)), {"axis": 1}),
]


@pytest.mark.parametrize(("op", "shapes", "attributes"), FUNCTIONS)
def test_own_functions_are_what_the_reference_computes(
    op: str, shapes: tuple[tuple[int, ...], ...], attributes: dict[str, Any]
) -> None:
    names = [f"i{k}" for k in range(len(shapes))]
    node = helper.make_node(op, names, ["y"], **attributes)
    random = np.random.default_rng(len(op))
    operands = [random.standard_normal(shape) for shape in shapes]
    function = float64_function(node)
    assert function is not None
    (expected,) = ReferenceEvaluator(node, opsets={"": 20}).run(None, dict(zip(names, operands)))
    np.testing.assert_allclose(function(node, operands), expected, rtol=1e-12)


TANH = math.sqrt(2 / math.pi)
GELUS: list[tuple[str, dict[str, Any], Callable[[float], float]]] = [
    ("Erf", {}, math.erf),
    ("Gelu", {}, lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
    ("Gelu", {"approximate": "tanh"}, lambda x: x * (1 + math.tanh(TANH * (x + 0.044715 * x**3))) / 2),
    ("FastGelu", {}, lambda x: x * (1 + math.tanh(TANH * (x + 0.044715 * x**3))) / 2),
    ("QuickGelu", {"alpha": 1.5}, lambda x: x / (1 + math.exp(-1.5 * x))),
]


@pytest.mark.parametrize(("op", "attributes", "formula"), GELUS)
def test_functions_that_the_reference_lacks_or_keeps_in_float32(
    op: str, attributes: dict[str, Any], formula: Callable[[float], float]
) -> None:
    function = float64_function(helper.make_node(op, ["x"], ["y"], **attributes))
    assert function is not None
    x = np.linspace(-5, 5, 101)
    expected = [formula(each) for each in x]
    np.testing.assert_allclose(
        function(helper.make_node(op, ["x"], ["y"], **attributes), [x]), expected, rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("attributes", [{"ceil_mode": 1, "strides": [2]}, {"auto_pad": "SAME_UPPER"}])
def test_other_windows_are_left_to_the_reference(attributes: dict[str, Any]) -> None:
    assert float64_function(helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2], **attributes)) is None
