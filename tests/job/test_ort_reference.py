"""ORT as the reference: every node output, one thread, errors as sentences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from epu.errors import UserError
from epu.ort_reference import OrtReference, cpu_description, time_plain


def small_model() -> onnx.ModelProto:
    """x → QuantizeLinear → DequantizeLinear → Relu → y, with no value_info at all."""
    scale = helper.make_tensor("s", TensorProto.FLOAT, [], [0.5])
    zero = helper.make_tensor("z", TensorProto.INT8, [], [0])
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantize"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "dequantize"),
        helper.make_node("Relu", ["d"], ["y"], "relu"),
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "small", value[:1], value[1:], [scale, zero])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_every_node_output_and_the_inputs_are_returned() -> None:
    reference = OrtReference(small_model())
    values = reference.run({"x": np.array([-1.0, 0.6, 2.0], np.float32)})
    assert set(values) == {"x", "q", "d", "y"}
    assert values["q"].dtype == np.int8
    np.testing.assert_array_equal(values["q"], [-2, 1, 4])
    np.testing.assert_array_equal(values["y"], np.array([0, 0.5, 2], np.float32))


def test_input_specs() -> None:
    (spec,) = OrtReference(small_model()).inputs
    assert (spec.name, spec.shape, spec.dtype) == ("x", (3,), np.float32)


def test_reals_take_the_declared_precision() -> None:
    typed = OrtReference(small_model()).typed({"x": np.zeros(3), "other": np.zeros(1, np.int8)})
    assert typed["x"].dtype == np.float32
    assert typed["other"].dtype == np.int8


def test_the_model_of_the_caller_is_left_alone() -> None:
    model = small_model()
    OrtReference(model)
    assert [each.name for each in model.graph.output] == ["y"]


def test_a_model_that_ort_refuses_is_a_user_error_of_one_line() -> None:
    model = small_model()
    model.graph.node[2].op_type = "NoSuchOp"
    with pytest.raises(UserError, match="'broken': onnxruntime cannot load the model") as refusal:
        OrtReference(model, "broken")
    assert "\n" not in str(refusal.value)
    assert "NoSuchOp" in str(refusal.value)


def test_a_wrong_shape_is_a_user_error() -> None:
    with pytest.raises(UserError, match="cannot run"):
        OrtReference(small_model()).run({"x": np.zeros((2, 2), np.float32)})


def test_timing_and_cpu(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    onnx.save(small_model(), path)
    timing = time_plain(path, {"x": np.zeros(3, np.float32)}, repeats=3)
    assert 0 < timing.unoptimised < 1
    assert 0 < timing.default < 1
    assert cpu_description()
