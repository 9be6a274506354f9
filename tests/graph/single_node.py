"""One node as a typed graph and as an ONNX model: what the operator tests share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Float, Graph, Node, Quantized, Tensor

Array = NDArray[Any]
CONTRIB = "com.microsoft"
OPSET, CONTRIB_OPSET = 17, 1


@dataclass(frozen=True)
class Q:
    """A quantized operand: raw values (none for an output) and its type."""

    raw: Array
    scale: Any
    zero_point: Any = 0
    dtype: str = "int8"
    axis: int | None = None

    @property
    def type(self) -> Quantized:
        scales = tuple(float(s) for s in np.atleast_1d(np.asarray(self.scale, np.float32)))
        zeros = np.broadcast_to(np.atleast_1d(self.zero_point), (len(scales),))
        return Quantized(self.dtype, scales, tuple(int(z) for z in zeros), self.axis)


NO_VALUES = np.zeros(0, np.int8)  # of an output


@dataclass
class Single:
    """A one-node case: ``order`` lays the ONNX inputs out from operands ("0", "1", …) and the output's parameters ("y")."""

    op: str
    operands: list[Q]
    output: Q
    attrs: dict[str, Any] = field(default_factory=dict)
    order: str = "01y"
    bias: Array | None = None
    domain: str = ""


def typed_graph(case: Single, shape: tuple[int, ...]) -> tuple[Graph, dict[str, Array]]:
    """The typed graph of a quantized case, and its raw inputs."""
    tensors = {f"x{i}": Tensor(f"x{i}", q.raw.shape, q.type) for i, q in enumerate(case.operands)}
    values = {f"x{i}": q.raw for i, q in enumerate(case.operands)}
    if case.bias is not None:
        tensors["bias"] = Tensor("bias", case.bias.shape, Quantized("int32", (1.0,), (0,)))
        values["bias"] = case.bias
    tensors["y"] = Tensor("y", shape, case.output.type)
    node = Node("node", case.op, list(values), ["y"], case.attrs)
    return Graph("single", [node], tensors, list(values), ["y"]), values


def onnx_answer(case: Single) -> Array:
    """What ONNX Runtime computes for a quantized case."""
    from onnx import TensorProto, helper, numpy_helper

    names, initializers = [], []

    def constant(name: str, array: Any) -> None:
        names.append(name)
        initializers.append(numpy_helper.from_array(np.asarray(array), name))

    for letter in case.order:
        if letter == "b":
            names.append("") if case.bias is None else constant("bias", case.bias)
        else:
            q = case.output if letter == "y" else case.operands[int(letter)]
            if letter != "y":
                names.append(f"x{letter}")
            constant(f"s{letter}", np.asarray(q.scale, np.float32))
            constant(f"z{letter}", np.asarray(q.zero_point, q.dtype))
    while names[-1] == "":
        names.pop()
    kinds = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}
    node = helper.make_node(case.op, names, ["y"], domain=case.domain, **case.attrs)
    inputs = [helper.make_tensor_value_info(f"x{i}", kinds[q.dtype], q.raw.shape) for i, q in enumerate(case.operands)]
    output = helper.make_tensor_value_info("y", kinds[case.output.dtype], None)
    feeds = {f"x{i}": q.raw for i, q in enumerate(case.operands)}
    return run_model([node], inputs, output, initializers, feeds)


def run_model(nodes: Any, inputs: Any, output: Any, initializers: Any, feeds: dict[str, Array]) -> Array:
    """Nodes in ONNX Runtime, unoptimised, one thread."""
    import onnxruntime
    from onnx import helper

    graph = helper.make_graph(nodes, "single", inputs, [output], initializers)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, CONTRIB_OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    answer: Array = session.run(None, feeds)[0]
    return answer


def float_graph(
    op: str, inputs: dict[str, Array], constants: dict[str, Array], attrs: dict[str, Any], shape: Any
) -> Graph:
    """One float node; constants are float32 tensors with data."""
    tensors = {name: Tensor(name, array.shape, Float()) for name, array in inputs.items()}
    tensors.update({name: Tensor(name, array.shape, Float(), array) for name, array in constants.items()})
    tensors["y"] = Tensor("y", tuple(shape), Float())
    node = Node("node", op, [*inputs, *constants], ["y"], attrs)
    return Graph("single", [node], tensors, list(inputs), ["y"])


def onnx_float_answer(op: str, inputs: dict[str, Array], constants: dict[str, Array], attrs: dict[str, Any]) -> Array:
    """What ONNX Runtime computes for one float32 node."""
    from onnx import TensorProto, helper, numpy_helper

    node = helper.make_node(op, [*inputs, *constants], ["y"], **attrs)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in inputs.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    return run_model([node], values, output, initializers, inputs)
