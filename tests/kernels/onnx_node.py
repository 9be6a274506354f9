"""A model of one ONNX node from import to simulator, and what it must equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from one_node import assert_same, run
from onnx import helper

from epu.compiler import compile_graph
from epu.front_end import import_model, to_typed_graph
from epu.quantization.observe import observe_ranges
from epu.raw_tensors import decode, encode
from epu.reference import run_reference
from epu.simulator import Machine

Array = NDArray[Any]
LEAST_DB = 120.0
OPSET, IR_VERSION = 17, 8
RNG = np.random.default_rng(7)


def real(*shape: int) -> Array:
    return np.asarray(RNG.normal(size=shape), np.float32)


def mask(*shape: int) -> Array:
    return np.asarray(RNG.integers(0, 2, shape), bool)


def codes(dtype: str, *shape: int) -> Array:
    return RNG.integers(-100 if dtype != "uint8" else 0, 100, shape).astype(dtype)


@dataclass(frozen=True)
class Model:
    """A model of one node and the arrays that it is fed."""

    proto: onnx.ModelProto
    feeds: dict[str, Array]
    answers: list[Array]


def session(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def model_of(op: str, arrays: Sequence[Array], constants: Sequence[int], opset: int, attrs: dict[str, Any]) -> Model:
    names = [f"x{index}" for index in range(len(arrays))]
    data = [index for index in range(len(arrays)) if index not in constants]
    inputs = [
        helper.make_tensor_value_info(names[k], helper.np_dtype_to_tensor_dtype(arrays[k].dtype), arrays[k].shape)
        for k in data
    ]
    kept = [onnx.numpy_helper.from_array(arrays[k], names[k]) for k in constants]
    node = helper.make_node(op, names, ["y"], name="node", **attrs)
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info("y")], kept)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
    feeds = {names[k]: arrays[k] for k in data}
    answers = session(proto).run(None, feeds)
    kind = helper.np_dtype_to_tensor_dtype(answers[0].dtype)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", kind, answers[0].shape))
    return Model(proto, feeds, answers)


def check(op: str, arrays: Sequence[Array], constants: Sequence[int] = (), opset: int = OPSET, **attrs: Any) -> None:
    model = model_of(op, arrays, constants, opset, attrs)
    ranges = observe_ranges(model.proto, iter([model.feeds]))
    module = compile_graph(to_typed_graph(import_model(model.proto), ranges, "one"), Machine.for_product("QC-N"))
    raw = encode(module.program.inputs, model.feeds)
    found, golden, reference = run(module, raw), module.golden(raw), run_reference(module.graph, raw)
    for name in sorted(set(golden) & set(found.observed)):
        assert_same(f"golden {name}", golden[name], reference[name])
        assert_same(f"simulator {name}", found.observed[name], golden[name])
    (answer,) = model.answers
    value = decode(module.program.outputs, found.result.outputs)["y"]
    assert (value.shape, value.dtype) == (answer.shape, answer.dtype)
    assert decibels(value, answer) >= LEAST_DB


def decibels(found: Array, expected: Array) -> float:
    """PSNR in dB; infinite without an error."""
    error = float(np.sqrt(np.mean(np.square(found.astype(np.float64) - expected.astype(np.float64)))))
    return float("inf") if error == 0 else 20 * float(np.log10(np.abs(expected).max() / error))
