"""Run ONNX models with ONNX Runtime and Relay modules on the host."""

from __future__ import annotations

from typing import Any

import onnx
import onnxruntime as ort
import tvm
from numpy.typing import NDArray
from tvm import relay
from tvm.contrib import graph_executor

Array = NDArray[Any]
HOST = "llvm -mtriple=x86_64-linux-gnu"


def ort_outputs(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, inputs
    )


def executor_outputs(library: Any, inputs: dict[str, Array]) -> list[Array]:
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.set_input(**inputs)
    executor.run()
    return [executor.get_output(index).numpy() for index in range(executor.get_num_outputs())]


def built_outputs(module: Any, inputs: dict[str, Array], target: Any = HOST, **more: Any) -> list[Array]:
    return executor_outputs(relay.build(module, target=target, **more), inputs)


def calls(function: Any) -> list[Any]:
    found: list[Any] = []
    relay.analysis.post_order_visit(function.body, lambda e: found.append(e) if isinstance(e, relay.Call) else None)
    return found
