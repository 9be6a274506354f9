"""Small ONNX models for the tests of loading, cutting and quantising."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SHARED_MODELS = Path(__file__).resolve().parents[2].parent / "shared" / "models"
FLOAT = TensorProto.FLOAT
IR_VERSION = 8


def value(name: str, shape: Sequence[int | str], elem_type: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem_type, shape)


def node(
    op_type: str, inputs: Sequence[str], output: str, name: str | None = None, **attributes: Any
) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, [output], name=output if name is None else name, **attributes)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: dict[str, Any] | None = None,
    opset: int = 13,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "small", list(inputs), list(outputs), tensors)
    ir_version = max(IR_VERSION, helper.find_min_ir_version_for([helper.make_opsetid("", opset)], True))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def normal(seed: int, *shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def conv_net(opset: int = 13, size: int = 8) -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, pooling, Gemm, Softmax; the Conv and the Relu have no name."""
    weights = {
        "w": normal(0, 4, 3, 3, 3),
        "gamma": np.full(4, 1.5, np.float32),
        "beta": normal(1, 4),
        "mean": normal(2, 4),
        "var": np.abs(normal(3, 4)) + 1,
        "fc": normal(4, 4, 5),
        "fc_bias": normal(5, 5),
    }
    nodes = [
        node("Conv", ["x", "w"], "conv", name="", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["conv", "gamma", "beta", "mean", "var"], "bn"),
        node("Relu", ["bn"], "relu", name=""),
        node("GlobalAveragePool", ["relu"], "pool"),
        node("Flatten", ["pool"], "flat"),
        node("Gemm", ["flat", "fc", "fc_bias"], "logits"),
        node("Softmax", ["logits"], "y", axis=1),
    ]
    return model_of(nodes, [value("x", [1, 3, size, size])], [value("y", [1, 5])], weights, opset)


def layer_norm_net(
    opset: int = 13, *, square: str = "Pow", twice: bool = False, affine: bool = True, size: int = 16
) -> onnx.ModelProto:
    """MatMul followed by a decomposed layer normalisation whose names say nothing, then a MatMul and an Add."""
    weights: dict[str, Any] = {
        "w": normal(0, size, size),
        "v": normal(1, size, size),
        "two": np.float32(2),
        "eps": np.float32(1e-5),
        "gamma": normal(2, size),
        "beta": normal(3, size),
        "axes": np.array([-1]),
    }
    axes: dict[str, Any] = {} if opset >= 18 else {"axes": [-1]}
    reduced = ["axes"] if opset >= 18 else []
    centre = "b2" if twice else "b"
    nodes = [
        node("MatMul", ["x", "w"], "m"),
        node("ReduceMean", ["m", *reduced], "a", **axes),
        node("Sub", ["m", "a"], "b"),
        *([node("Sub", ["m", "a"], "b2")] if twice else []),
        node("Pow", [centre, "two"], "c") if square == "Pow" else node("Mul", [centre, centre], "c"),
        node("ReduceMean", ["c", *reduced], "d", **axes),
        node("Add", ["d", "eps"], "e"),
        node("Sqrt", ["e"], "f"),
        node("Div", ["b", "f"], "g"),
        *([node("Mul", ["g", "gamma"], "h"), node("Add", ["h", "beta"], "i")] if affine else []),
        node("MatMul", ["i" if affine else "g", "v"], "j"),
        node("Add", ["j", "beta"], "y"),
    ]
    used = {name for each in nodes for name in each.input}
    weights = {name: array for name, array in weights.items() if name in used}
    return model_of(nodes, [value("x", [1, 4, size])], [value("y", [1, 4, size])], weights, opset)


def shared_model(name: str) -> tuple[Path, list[dict[str, Any]]]:
    """Path and real inputs of a model the project does not carry; skips the test where it is absent."""
    path = SHARED_MODELS / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is absent: put the shared models beside the repository to run this test")
    arrays = np.load(SHARED_MODELS / f"{name}.inputs.npz")
    numbers = sorted({int(key.split("/")[0]) for key in arrays.files})
    return path, [{k.split("/", 1)[1]: arrays[k] for k in arrays.files if k.startswith(f"{i}/")} for i in numbers]
