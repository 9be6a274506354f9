"""Operators that Relay spells as several calls come back as one node, and what is composed has the right value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from epu.compiler import compile_graph
from epu.front_end import import_model, to_typed_graph
from epu.metrics import psnr_db
from epu.simulator import Machine, simulate
from epu.simulator.fixed_point import decode_raw, encode_real

RNG = np.random.default_rng(5)
FOUR, TWO = (RNG.normal(1, 0.5, (2, count)).astype(np.float32) for count in (4, 2))
AXES = np.int64([-1])

CASES: list[tuple[str, int, Sequence[Any], dict[str, Any], list[str]]] = [
    ("Gelu", 20, (), {}, ["Gelu"]),
    ("Gelu", 20, (), {"approximate": "tanh"}, ["Gelu"]),
    ("Softplus", 17, (), {}, ["Softplus"]),
    ("Elu", 17, (), {"alpha": 0.5}, ["Elu"]),
    ("Selu", 17, (), {}, ["Elu", "Mul"]),
    ("HardSwish", 17, (), {}, ["HardSwish"]),
    ("Reciprocal", 17, (), {}, ["Reciprocal"]),
    ("Softsign", 17, (), {}, ["Abs", "Add", "Div"]),
    ("Mish", 18, (), {}, ["Softplus", "Tanh", "Mul"]),
    ("LogSoftmax", 17, (), {}, ["ReduceMax", "Sub", "Clip", "Exp", "ReduceSum", "Log", "Sub"]),
    ("PRelu", 17, (FOUR[0].reshape(4, 1, 1) / 4,), {}, ["PRelu"]),
    ("PRelu", 17, (np.float32([0.2]),), {}, ["LeakyRelu"]),
    ("ReduceL2", 18, (AXES,), {}, ["ReduceL2"]),
    ("InstanceNormalization", 17, tuple(FOUR), {}, ["Reshape", "LayerNormalization", "Reshape", "Mul", "Add"]),
    (
        "GroupNormalization",
        18,
        tuple(TWO),
        {"num_groups": 2},
        ["Reshape", "LayerNormalization", "Reshape", "Mul", "Add"],
    ),
]


def model_of(op: str, opset: int, constants: Sequence[Any], attrs: dict[str, Any], shape: tuple[int, ...]) -> Any:
    names = [f"c{index}" for index in range(len(constants))]
    node = helper.make_node(op, ["x", *names], ["y"], name="n", **attrs)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", shape), ("y", None))]
    held = [numpy_helper.from_array(np.asarray(each), name) for name, each in zip(names, constants)]
    graph = helper.make_graph([node], "one", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


@pytest.mark.parametrize(("op", "opset", "constants", "attrs", "ops"), CASES)
def test_one_node(op: str, opset: int, constants: Any, attrs: dict[str, Any], ops: list[str]) -> None:
    x = np.random.default_rng(3).uniform(0.2 if op == "Reciprocal" else -4, 4, (1, 4, 3, 5)).astype(np.float32)
    model = model_of(op, opset, constants, attrs, x.shape)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    y = session.run(None, {"x": x})[0]
    ranges = {name: (float(each.min()), float(each.max())) for name, each in (("x", x), ("y", y))}
    graph = to_typed_graph(import_model(model), ranges, op)
    assert [node.op for node in graph.nodes] == ops
    module = compile_graph(graph, Machine.for_product("QC-N"))
    (source,), (out,) = module.program.inputs, module.program.outputs
    raw = {source.name: encode_real(source.decode, x.astype(np.float64)).reshape(source.shape)}
    found = simulate(module.program, raw).outputs[out.name]
    np.testing.assert_array_equal(found, module.golden(raw)[out.name])
    error = decode_raw(out.decode, found).reshape(y.shape) - y
    assert psnr_db(float(np.abs(y).max()), float(np.sqrt(np.mean(np.square(error))))) >= 120
