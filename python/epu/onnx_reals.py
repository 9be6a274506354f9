"""A model whose reals are all float32 on paper: on the EPU float16, bfloat16 and float64 are fixed point like float32."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

OTHER_REALS = frozenset((TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE))


def to_float32(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with float32 where ``model`` says float16, bfloat16 or float64; a cast between reals then does nothing."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.elem_type in OTHER_REALS:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for tensor in graph.initializer:
        _retype(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            _retype_attribute(node, attribute)
    return result


def _retype_attribute(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    if attribute.HasField("t"):
        _retype(attribute.t)
    if node.op_type == "Cast" and attribute.name == "to" and attribute.i in OTHER_REALS:
        attribute.i = TensorProto.FLOAT


def _retype(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in OTHER_REALS:
        values = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
