"""ONNX → Relay in linear time: one walk over the nodes, shapes tracked by our own rules, one span per ONNX node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epu.relay_passes.onnx_custom import CONVERTERS as CUSTOM
from epu.relay_passes.onnx_custom import base_type
from epu.relay_passes.onnx_einsum import CONVERTERS as EINSUM
from epu.relay_passes.onnx_elementwise import CONVERTERS as ELEMENTWISE
from epu.relay_passes.onnx_functions import CONVERTERS as FUNCTIONS
from epu.relay_passes.onnx_host import HOST_REASONS
from epu.relay_passes.onnx_layout import CONVERTERS as LAYOUT
from epu.relay_passes.onnx_linear import CONVERTERS as LINEAR
from epu.relay_passes.onnx_node import DTYPES, OnnxNode, Shape, Value, constant
from epu.relay_passes.onnx_pooling import CONVERTERS as POOLING
from epu.relay_passes.onnx_power import CONVERTERS as POWER
from epu.relay_passes.onnx_quantized import CONVERTERS as QUANTIZED
from epu.relay_passes.onnx_resize import CONVERTERS as RESIZE
from epu.relay_passes.onnx_selection import CONVERTERS as SELECTION
from epu.relay_passes.tvm_relay import OUTPUT_MARK, relay, span_of, tvm
from epu.simulator.errors import UnsupportedNode, UserError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

Names = dict[tuple[str, int], str]  # (node name, output index) -> ONNX tensor name, in ONNX order

TABLES = (CUSTOM, EINSUM, ELEMENTWISE, FUNCTIONS, LAYOUT, LINEAR, POOLING, POWER, QUANTIZED, RESIZE, SELECTION)
CONVERTERS = {op: converter for table in TABLES for op, converter in table.items()}
assert len(CONVERTERS) == sum(len(table) for table in TABLES), "an ONNX op has two converters"

NEVER_FOLDED = {"DequantizeLinear"}  # an int8 weight stays int8
FOLDED_DOMAINS = ("", "ai.onnx")


def import_onnx(model: ModelProto, shapes: dict[str, Shape] | None = None) -> tuple[Any, dict[str, Any], Names]:
    """Relay module of an ONNX model with static shapes.

    ``shapes`` overrides declared input shapes. Returns the typed module (constants inside, each with its ONNX name as
    span), an empty ``params`` and the map (node name, output index) → tensor name. Every call carries the ONNX node
    name as span, with the output index as its line; the last call for an output is that output. Raises ``UserError``
    for a dynamic input and ``UnsupportedNode`` for a node without converter.
    """
    values = _initializers(model)
    inputs = {info.name: _input(info, shapes or {}) for info in model.graph.input if info.name not in values}
    values.update(inputs)
    names = _import_nodes(model, values)
    outputs = [_output(values, info.name) for info in model.graph.output]
    body = outputs[0] if len(outputs) == 1 else relay.Tuple(outputs)
    module = tvm.IRModule.from_expr(relay.Function([value.expr for value in inputs.values()], body))
    return relay.transform.InferType()(module), {}, names


def import_refusals(model: ModelProto, types: Mapping[str, ValueInfoProto]) -> dict[str, UserError]:
    """Nodes that ``import_onnx`` refuses, each with its error; the others are judged as if the host made what these make.

    ``types`` states the tensors' types. A node that reads a tensor without a static shape is refused too.
    """
    values, refused = _initializers(model), {}
    declared = [info for info in model.graph.input if info.name not in values]
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    values.update(_declared([info.name for info in declared], {info.name: info for info in declared}))
    for proto, name in sorted_nodes(model):
        try:
            node = _open(proto, name, values, opsets.get(proto.domain, 1))
            results = _fold(proto, node) or _converted(proto, node)
        except UserError as error:
            refused[name] = error
            values.update(_declared(proto.output, types))
        else:
            values.update(zip(proto.output, results))
    return refused


def _declared(names: Iterable[str], types: Mapping[str, ValueInfoProto]) -> dict[str, Value]:
    """Tensors of known type as inputs; the others are left out."""
    found = {}
    for name in names:
        try:
            found.update({name: _input(types[name], {})} if name in types else {})
        except UserError:  # dynamic, or of a type that Relay lacks: whoever reads it stays on the host
            continue
    return found


def node_names(model: ModelProto) -> list[str]:
    """Name of every node: the ONNX one where it is unique, else made from op and first output."""
    taken: set[str] = set()
    names = []
    for index, node in enumerate(model.graph.node):
        name = node.name or f"{node.op_type}_{node.output[0]}"
        name = f"{name}_{index}" if name in taken else name
        taken.add(name)
        names.append(name)
    return names


def sorted_nodes(model: ModelProto) -> list[tuple[NodeProto, str]]:
    """Nodes and names, each after the makers of its inputs and otherwise in the order of the file.

    ONNX asks for that order, but ONNX Runtime's QDQ quantiser does not write it.
    """
    from epu.onnx_order import node_order

    nodes = list(zip(model.graph.node, node_names(model)))
    return [nodes[index] for index in node_order(list(model.graph.node))]


def _initializers(model: ModelProto) -> dict[str, Value]:
    from onnx import numpy_helper

    tensors = model.graph.initializer
    return {tensor.name: constant(numpy_helper.to_array(tensor), tensor.name) for tensor in tensors}


def _input(info: ValueInfoProto, shapes: dict[str, Shape]) -> Value:
    from onnx import helper

    tensor = info.type.tensor_type
    dims = shapes.get(info.name, tuple(dim.dim_value for dim in tensor.shape.dim))
    if not all(dim > 0 for dim in dims):
        found = [dim.dim_value or dim.dim_param or "?" for dim in tensor.shape.dim]
        raise UserError(
            f"ONNX input '{info.name}': every dimension must be a positive number, found {found}. "
            f"Fix the shape in the model or pass shapes={{'{info.name}': (1, ...)}}."
        )
    dtype = str(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    if dtype not in DTYPES:
        raise UserError(
            f"ONNX input '{info.name}': tensors must be bool, integers of 8 to 64 bits or floats, found {dtype}. "
            "Cut the model behind it."
        )
    return Value(tuple(dims), dtype, relay.var(info.name, shape=dims, dtype=dtype, span=span_of(info.name)))


def _import_nodes(model: ModelProto, values: dict[str, Value]) -> Names:
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    names: Names = {}
    for proto, name in sorted_nodes(model):
        node = _open(proto, name, values, opsets.get(proto.domain, 1))
        results = _fold(proto, node) or _converted(proto, node)
        values.update(zip(proto.output, results))
        folded = all(result.data is not None for result in results)
        names.update({} if folded else {(name, index): output for index, output in enumerate(proto.output) if output})
    return names


def _open(proto: NodeProto, name: str, values: dict[str, Value], opset: int) -> OnnxNode:
    from onnx import helper

    missing = [key for key in proto.input if key and key not in values]
    if missing:
        raise UserError(
            f"ONNX node '{name}' ({proto.op_type}): input '{missing[0]}' must be made by a node and have a static shape, "
            "found neither. Repair the model, or leave optional second outputs unused."
        )
    marked = next((each for each in (name, *proto.output) if OUTPUT_MARK in each), None)
    if marked is not None:
        raise UserError(
            f"ONNX node '{name}' ({proto.op_type}): names must be without {OUTPUT_MARK}, which Relay models mark outputs "
            f"with, found '{marked}'. Rename it."
        )
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in proto.attribute}
    inputs = [values[key] if key else None for key in proto.input]
    node = OnnxNode(name, proto.op_type, inputs, attributes, opset, len(proto.output), proto.domain)
    for value in inputs:
        if value is not None:
            node.require_dtype(value.dtype)
    return node


def _convert(node: OnnxNode) -> list[Value]:
    converter = CONVERTERS.get(base_type(node.op_type))
    if converter is None:
        reason = HOST_REASONS.get(node.op_type, "found none of that name")
        raise UnsupportedNode(
            f"ONNX node '{node.name}' ({node.op_type}): the importer must know the op, {reason}. "
            "Leave it out with epu.cut_onnx, or import the model with relay.frontend.from_onnx to run it on the host."
        )
    result = converter(node)
    return result if isinstance(result, list) else [result]


def _converted(proto: NodeProto, node: OnnxNode) -> list[Value]:
    """As Relay; of what is made from dequantized constants alone the values can be had too."""
    results = _convert(node)
    known = all(value is None or value.is_known for value in node.inputs)
    if not known or not node.inputs or proto.domain not in FOLDED_DOMAINS:
        return results
    return [replace(value, late=partial(_evaluated, proto, node, index)) for index, value in enumerate(results)]


def _evaluated(proto: NodeProto, node: OnnxNode, index: int) -> NDArray[Any]:
    return _evaluate(proto, node)[index]


def _fold(proto: NodeProto, node: OnnxNode) -> list[Value] | None:
    if node.op_type == "Constant":
        return [constant(_constant_data(node), proto.output[0])]
    if node.op_type == "Shape":
        start, end = node.attr("start", 0), node.attr("end", None)
        return [constant(np.array(node.input(0).shape[start:end], np.int64), proto.output[0])]
    known = all(value is None or value.data is not None for value in node.inputs)
    if not known or proto.domain not in FOLDED_DOMAINS or node.op_type in NEVER_FOLDED:
        return None
    return [constant(data, name) for data, name in zip(_evaluate(proto, node), proto.output)]


def _constant_data(node: OnnxNode) -> NDArray[Any]:
    from onnx import TensorProto, numpy_helper

    (value,) = node.attributes.values()
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    is_float = any(key.startswith("value_float") for key in node.attributes)
    return np.asarray(value, np.float32 if is_float else np.int64)


def _evaluate(proto: NodeProto, node: OnnxNode) -> list[NDArray[Any]]:
    from onnx.reference import ReferenceEvaluator

    feeds = {key: value.known for key, value in zip(proto.input, node.inputs) if value is not None}
    results = ReferenceEvaluator(proto, opsets={"": node.opset}).run(None, feeds)
    return [np.asarray(result) for result in results]


def _output(values: dict[str, Value], name: str) -> Any:
    if name not in values:
        raise UserError(f"ONNX output '{name}': a node must make it, found none. Repair the model's output list.")
    return values[name].expr
