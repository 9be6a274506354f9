"""Moves of decoded codes between a quantised product and its next QuantizeLinear: each is compared in its own type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from epu.hw_config import HWConfig
from epu.job import ChimeraJob

pytest.importorskip("tvm", reason="the Relay door needs TVM")


def moved_product(second: float) -> onnx.ModelProto:
    """Quantise → product of codes → decode → transpose → reshape → quantise → decode."""
    random = np.random.default_rng(0)
    values = {
        "s": np.float32(0.05),
        "t": np.float32(second),
        "z": np.int8(0),
        "w": random.integers(-90, 90, (8, 8)).astype(np.int8),
        "shape": np.array([5, 32]),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantise"),
        helper.make_node("QLinearMatMul", ["q", "s", "z", "w", "s", "z", "s", "z"], ["y"], name="product"),
        helper.make_node("DequantizeLinear", ["y", "s", "z"], ["f"], name="decode"),
        helper.make_node("Transpose", ["f"], ["turned"], name="turn", perm=[1, 0, 2]),
        helper.make_node("Reshape", ["turned", "shape"], ["flat"], name="flatten"),
        helper.make_node("QuantizeLinear", ["flat", "t", "z"], ["p"], name="again"),
        helper.make_node("DequantizeLinear", ["p", "t", "z"], ["out"], name="end"),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 5, 8)),
        helper.make_tensor_value_info("out", TensorProto.FLOAT, (5, 32)),
    ]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "moved", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("second", [0.05, 0.07])
def test_every_move_between_two_scales_equals_ort(second: float, tmp_path: Path) -> None:
    onnx.save(moved_product(second), tmp_path / "moved.onnx")
    job = ChimeraJob(tmp_path / "moved.onnx", HWConfig("QC-N"), run_directory=tmp_path / "run")
    job.compile()
    result = job.validate_ort_iss({"x": np.random.default_rng(1).standard_normal((4, 5, 8)).astype(np.float32)})
    assert result.passed, result.failures
    assert result.summary["isolated_unexplained"] == 0
    assert [row["Name"] for row in result if row["Bitwise Mismatches"] and row["dtype"] == "int8"] == []
