"""Values of the small integer tensors that a model computes from its shapes, for shape inference to use."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Values = dict[str, NDArray[Any]]

MAXIMAL_SIZE = 1024  # elements; shapes are far smaller
SHAPE_OPS = frozenset(
    "Add Cast Ceil Concat Constant ConstantOfShape Div Equal Expand Floor Gather Identity Max Min Mul Range ReduceProd "
    "Reshape ScatterND Slice Squeeze Sub Unsqueeze Where".split()
)


def shape_values(model: onnx.ModelProto, shapes: dict[str, tuple[int, ...]]) -> Values:
    """Return the value of each node output that depends on ``shapes`` and constants alone.

    ``shapes`` are the tensor shapes known so far. Only operators that shape computations use are evaluated, on at
    most 1024 elements, with the ONNX reference implementation.
    """
    known = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if np.prod(t.dims) <= MAXIMAL_SIZE}
    constants = set(known)
    for node in model.graph.node:
        if node.op_type == "Shape" and node.input[0] in shapes:
            known[node.output[0]] = _shape(node, shapes[node.input[0]])
        elif node.op_type in SHAPE_OPS and all(name in known for name in node.input if name):
            known |= _evaluate(model, node, known)
    return {name: value for name, value in known.items() if name not in constants}


def _shape(node: onnx.NodeProto, shape: tuple[int, ...]) -> NDArray[np.int64]:
    ends = {attribute.name: attribute.i for attribute in node.attribute}
    return np.array(shape[ends.get("start", 0) : ends.get("end", len(shape))], np.int64)


def _evaluate(model: onnx.ModelProto, node: onnx.NodeProto, known: Values) -> Values:
    """Return the outputs of one node; empty where they are too large or the reference cannot compute them."""
    feeds = {name: known[name] for name in node.input if name}
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "node", inputs, outputs)
    single = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    try:
        results = ReferenceEvaluator(single).run(None, feeds)
    except Exception:  # whatever the reference raises for a node it does not know: its shape stays unknown
        return {}
    arrays = {value.name: np.asarray(result) for value, result in zip(outputs, results, strict=True)}
    return arrays if all(array.size <= MAXIMAL_SIZE for array in arrays.values()) else {}
