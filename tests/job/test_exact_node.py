"""float64 as the arbiter: what it computes, what it leaves alone, and that a wrong ISS is not excused."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper

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
