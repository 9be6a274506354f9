"""A float32 model with nothing but a .tranges file runs wholly on the EPU, in fixed point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from epu.job import ChimeraJob
from epu.quantize import compute_tensor_ranges

pytest.importorskip("tvm", reason="the Relay door needs TVM")

Array = NDArray[Any]
SHAPE = (1, 4, 12, 12)
LEAST_DB = 120.0


class Sketch:
    """A float model in the making, with drawn weights."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(11)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        data = (self.random.standard_normal(shape) * 0.4).astype(np.float32)
        self.weights.append(numpy_helper.from_array(data, name))
        return name

    def constant(self, values: Any, dtype: str) -> str:
        name = f"k{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def add(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], f"{op}_{output}", **attributes))
        return output


def network() -> onnx.ModelProto:
    """Plain, depthwise, dilated and transposed convolutions, pooling, a resize, normalisation, two heads."""
    s = Sketch()
    a = s.add("Conv", ["x", s.weight(8, 4, 3, 3), s.weight(8)], "a", auto_pad="SAME_UPPER", strides=[2, 2])
    b = s.add("HardSwish", [a], "b")
    c = s.add("Conv", [b, s.weight(8, 1, 3, 3)], "c", group=8, pads=[2, 2, 2, 2], dilations=[2, 2])
    d = s.add("Relu", [s.add("Add", [c, b], "sum")], "d")
    e = s.add("ConvTranspose", [d, s.weight(8, 4, 3, 3), s.weight(4)], "e", strides=[2, 2], pads=[1, 1, 0, 0])
    f = s.add("Softmax", [e], "f", axis=1)
    g = s.add("Resize", [f, "", s.constant([1, 1, 0.5, 0.75], "float32")], "g", mode="linear")
    h = s.add("Conv", [s.add("MaxPool", [g], "m", kernel_shape=[2, 2]), s.weight(6, 4, 2, 3)], "h")
    i = s.add("Flatten", [s.add("GlobalAveragePool", [h], "p")], "i")
    j = s.add("Gemm", [i, s.weight(6, 5), s.weight(5)], "j", alpha=0.5, beta=2.0)
    s.add("ArgMax", [j], "best", axis=1, keepdims=0)
    ends = [
        ("j", TensorProto.FLOAT, (1, 5)),
        ("best", TensorProto.INT64, (1,)),
        ("f", TensorProto.FLOAT, (1, 4, 12, 12)),
    ]
    outputs = [helper.make_tensor_value_info(name, kind, dims) for name, kind, dims in ends]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)]
    graph = helper.make_graph(s.nodes, "float", inputs, outputs, s.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sample(seed: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)}


def test_a_float_model_needs_ranges_alone(tmp_path: Path) -> None:
    path, ranges = str(tmp_path / "float.onnx"), str(tmp_path / "float.onnx.tranges")
    onnx.save(network(), path)
    compute_tensor_ranges(path, ranges, [sample(seed) for seed in range(4)])
    job = ChimeraJob(path, trange_file=ranges, run_directory=tmp_path / "run")
    job.compile()
    result = job.validate_ort_iss(sample(9))
    assert result.passed, result.failures
    assert not job.host_nodes
    assert result.summary["skipped"] == 0
    assert result.summary["segment_min_psnr_db"] >= LEAST_DB
    assert [row["dtype"] for row in result.rows if row["Name"].startswith("ArgMax")] == ["int64"] * 3
