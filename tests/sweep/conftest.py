"""A tiny quantised model as a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SHAPE = (1, 4, 8, 8)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Quantise → 3 × 3 convolution of codes → dequantise."""
    weights = np.random.default_rng(0).integers(-9, 10, (4, 4, 3, 3)).astype(np.int8)
    values = {"s": np.float32(0.05), "z": np.int8(0), "w": weights, "sw": np.float32(0.02)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantise"),
        helper.make_node("QLinearConv", ["q", "s", "z", "w", "sw", "z", "s", "z"], ["y"], name="conv", pads=[1] * 4),
        helper.make_node("DequantizeLinear", ["y", "s", "z"], ["out"], name="dequantise"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "out")]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "tiny", ends[:1], ends[1:], constants)
    path = tmp_path_factory.mktemp("tiny") / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path
