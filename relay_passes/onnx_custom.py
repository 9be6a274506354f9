"""QuadricCustomOp: ONNX node → call of ``contrib.epu.quadric_custom_op`` → typed node (docs/custom_ops.md)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Float, Integer, Quantized, Tensor, TensorType
from epu.relay_passes.draft import Draft, Use
from epu.relay_passes.onnx_node import OnnxNode, Value
from epu.relay_passes.relay_view import Const, Step
from epu.relay_passes.tvm_relay import relay, tvm

RELAY_OP = "contrib.epu.quadric_custom_op"
OP_TYPE, DOMAIN = "QuadricCustomOp", "com.quadric"
OURS = ("op_name", "tensors")  # attributes of the ONNX node that are not the user's


def register() -> None:
    """Make the operator known to Relay: one tuple of tensors in, the type of its attributes out. Idempotent."""
    if RELAY_OP in set(tvm.ir.Op.list_op_names()):
        return
    tvm.ir._ffi_api.RegisterOp(RELAY_OP, "A custom operator of the EPU; see docs/custom_ops.md")
    op = tvm.ir.Op.get(RELAY_OP)
    op.add_argument("inputs", "Tuple", "The operands, then the constants.")
    op.set_num_inputs(1)
    op.set_attrs_type_key("DictAttrs")
    op.add_type_rel(OP_TYPE, _output_type)
    tvm.ir.register_op_attr(RELAY_OP, "TNonComputational", False)


def _output_type(arguments: Any, attrs: Any) -> Any:
    """The import has asked the operator's own rule."""
    return relay.TensorType([int(size) for size in attrs["shape"]], str(attrs["dtype"]))


def convert_custom(node: OnnxNode) -> Value:
    """The node as one call; its output type is what the registered operator says."""
    name = node.text("op_name", "")
    if node.domain != DOMAIN:
        raise node.refuse(f"a custom operator must be of the domain {DOMAIN}", repr(node.domain), "Set it in the model")
    inputs = [node.input(index) for index in range(len(node.inputs))]
    if node.num_outputs != 1:
        raise node.refuse("a custom operator must have one output", node.num_outputs, "Split it into several")
    tensors = tuple(Tensor(f"input {k}", v.shape, _plain(v.dtype), v.data) for k, v in enumerate(inputs))
    constants = {index: value.data for index, value in enumerate(inputs) if value.data is not None}
    attributes = {key: _plain_attribute(value) for key, value in node.attributes.items() if key not in OURS}
    shape, dtype = _declared(name, node.name, tensors, constants, attributes)
    settings = {
        "op_name": name,
        "attributes": json.dumps(attributes, sort_keys=True),
        "tensors": json.dumps(dict(_pair(node, each) for each in node.attr("tensors", []))),
        "shape": list(shape),
        "dtype": dtype,
    }
    call = relay.Call(tvm.ir.Op.get(RELAY_OP), [relay.Tuple([value.expr for value in inputs])], _attrs(settings))
    return node.result(node.emit(call), shape, dtype)


def _declared(
    name: str,
    node: str,
    tensors: tuple[Tensor, ...],
    constants: dict[int, NDArray[Any]],
    attributes: dict[str, Any],
) -> tuple[tuple[int, ...], str]:
    from epu.custom_ops import CustomCall, find

    found = find(name, node).output(CustomCall(node, name, tensors, None, constants, attributes))
    return tuple(int(size) for size in found.shape), found.dtype


def _pair(node: OnnxNode, text: bytes) -> tuple[str, str]:
    inner, equals, outer = text.decode().partition("=")
    if not equals:
        raise node.refuse("tensors must be texts 'body name=model name'", repr(inner), "Write them so")
    return inner, outer


def _plain_attribute(value: Any) -> Any:
    """An ONNX attribute as JSON has it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return [_plain_attribute(each) for each in value]
    return value


def _attrs(settings: dict[str, Any]) -> Any:
    return tvm.ir.make_node("DictAttrs", **settings)


def _plain(dtype: str) -> TensorType:
    return Float() if dtype == "float32" else Integer(dtype)


def custom_row(step: Step) -> Draft:
    """The typed node carries the registered operator, the constants as ONNX has them, and the names within its body."""
    from epu.custom_ops import CustomCall, find

    name = str(step.attrs["op_name"])
    op = find(name, step.span)
    constants = {index: arg.data for index, arg in enumerate(step.args) if isinstance(arg, Const)}
    attributes = json.loads(str(step.attrs["attributes"]))
    tensors = tuple(_tensor(index, arg) for index, arg in enumerate(step.args))
    found = op.output(CustomCall(step.span, name, tensors, None, constants, attributes))
    carried = {
        "custom": op,
        "attrs": attributes,
        "constants": constants,
        "tensors": json.loads(str(step.attrs["tensors"])),
    }
    out: Quantized | Float | None = Float() if found.dtype == "float32" else found.quantized
    return Draft(OP_TYPE, step, [Use(arg) for arg in step.args], carried, out, [step], moves_codes=False)


def _tensor(index: int, arg: Any) -> Tensor:
    data = np.asarray(arg.data) if isinstance(arg, Const) else None
    return Tensor(f"input {index}", arg.shape, _plain(arg.dtype), data)


CONVERTERS = {OP_TYPE: convert_custom}


def base_type(op_type: str) -> str:
    """``QuadricCustomOp`` for all types that begin so: each body of the model has a type of its own."""
    return OP_TYPE if op_type.startswith(OP_TYPE) else op_type


register()
