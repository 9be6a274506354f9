"""ONNX Runtime sessions that do what the model says: no optimisation, one thread, extra tensors as outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
import onnxruntime
from onnx import helper

from epu.errors import UserError
from epu.ort_session import reason

PROVIDERS = ["CPUExecutionProvider"]
_ELEMENT_TYPES = {
    f"tensor({onnx.TensorProto.DataType.Name(number).lower()})": number for number in onnx.TensorProto.DataType.values()
}


def open_session(model: onnx.ModelProto, expose: Iterable[str] = ()) -> Any:
    """Return an onnxruntime.InferenceSession of the model with the tensors ``expose`` as further outputs.

    Graph optimisation is off and one thread computes, so that the values are those of the nodes as written. Raises
    UserError where ONNX Runtime refuses the model.
    """
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    present = {value.name for value in exposed.graph.output}
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in expose if name not in present)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return create_session(exposed, options)


def create_session(model: onnx.ModelProto, options: Any, **settings: Any) -> Any:
    """Return an onnxruntime.InferenceSession; raises UserError where ONNX Runtime refuses the model."""
    try:
        data = model.SerializeToString()
        return onnxruntime.InferenceSession(data, options, providers=PROVIDERS, **settings)
    except Exception as error:  # the classes of onnxruntime share no base but Exception
        raise UserError(
            f"ONNX Runtime {onnxruntime.__version__} refuses the model: {reason(error)}. "
            "Where it lacks an operator or opset, update onnxruntime, export with an older opset or cut the node off."
        ) from error


def run(session: Any, outputs: list[str] | None, sample: dict[str, Any], index: int) -> list[Any]:
    """Return the outputs for one sample; raises UserError that names the sample where a node fails."""
    try:
        return list(session.run(outputs, sample))
    except Exception as error:  # see create_session
        raise UserError(f"calibration sample {index}: ONNX Runtime stopped: {reason(error)}.") from error


def tensor_types(model: onnx.ModelProto) -> dict[str, tuple[str, list[int | str | None]]]:
    """Return the type, such as ``"tensor(float)"``, and shape of each input and node output, as ONNX Runtime infers
    them, in graph order. It knows its own operators, which ONNX shape inference does not."""
    names = [name for node in model.graph.node for name in node.output if name]
    session = open_session(model, names)
    found = {value.name: (value.type, value.shape) for value in (*session.get_inputs(), *session.get_outputs())}
    return {name: found[name] for name in dict.fromkeys([*(v.name for v in session.get_inputs()), *names])}


def with_runtime_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy that states the type and shape of each intermediate tensor as ONNX Runtime infers them."""
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    outer = {value.name for value in (*typed.graph.input, *typed.graph.output)}
    del typed.graph.value_info[:]
    for name, (type, shape) in tensor_types(model).items():
        if name not in outer and type in _ELEMENT_TYPES:
            typed.graph.value_info.append(helper.make_tensor_value_info(name, _ELEMENT_TYPES[type], shape))
    return typed
