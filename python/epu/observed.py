"""Which tensor of the EPU shows which ONNX node output: every output is mapped, or reported as not observable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import onnx
from numpy.typing import NDArray

from epu.fixed_formats import MASK, WORD_BITS
from epu.graph import Fixed, Float, Graph, Integer, Quantized, TensorType
from epu.simulator.fixed_point import NUMPY_DTYPE, encode_real
from epu.simulator.program import Buffer, Decode, Program

Tensors = Mapping[str, NDArray[Any]]

VIEW_OPS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")
STATIC_OPS = ("Shape", "Size", "Constant")  # constant once the shapes are fixed
GRAPH_TYPES = {"i8": "int8", "u8": "uint8", "i32": "int32", "i64": "int64"}


class Compiled(Protocol):
    """What validation needs of a compiled module (``epu.compiler.CompiledModule``)."""

    @property
    def program(self) -> Program: ...

    @property
    def graph(self) -> Graph: ...

    def golden(self, inputs: Tensors, force: Tensors | None = None) -> Tensors:
        """Every tensor in raw integers, computed on the CPU; ``force`` replaces tensors once they are recorded."""
        ...


@dataclass(frozen=True)
class NodeOutput:
    """One output of one ONNX node."""

    node: str
    op: str
    index: int
    tensor: str

    @property
    def label(self) -> str:
        return f"{self.node}:{self.index}"


def node_outputs(model: onnx.ModelProto) -> list[NodeOutput]:
    """Every output of every node that an output of the model depends on, in the model's order."""
    needed = _needed(model)
    return [
        NodeOutput(node.name or f"{node.op_type}_{node.output[0]}", node.op_type, index, name)
        for node in model.graph.node
        for index, name in enumerate(node.output)
        if name in needed
    ]


def _needed(model: onnx.ModelProto) -> set[str]:
    """Tensors that an output of the model depends on, whatever the order of the nodes."""
    makers = {name: node for node in model.graph.node for name in node.output if name}
    waiting, needed = [value.name for value in model.graph.output], set[str]()
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        waiting += makers[name].input if name in makers else []
    return needed - {""}


def program_buffers(program: Program) -> list[Buffer]:
    """Inputs, kernel outputs and outputs of a program."""
    kernels = (buffer for span in program.debug.kernels for buffer in span.outputs)
    return [*program.inputs, *kernels, *program.outputs]


class TensorMap:
    """ONNX tensors of one model in one compiled program."""

    def __init__(self, model: onnx.ModelProto, compiled: Compiled) -> None:
        self._graph = compiled.graph
        self._views = {**graph_views(compiled), **_views(model)}
        self._types = _tensor_types(compiled)
        for name in self._views.keys() - _made(compiled):  # what was removed has the type of what it is a view of
            self._types.pop(name, None)
        self._folded = _input_independent(model)

    def type_of(self, tensor: str) -> TensorType:
        """The ISS type of an ONNX tensor; Float where the program does not hold it."""
        return self._types.get(self._source(tensor), Float())

    def floor_of(self, tensor: str) -> float | None:
        """The lowest real of a tensor in which "minus infinity" saturates (range source "mask"); None for all others."""
        found = self._graph.tensors.get(tensor)
        if found is None or found.range_source != MASK or not isinstance(found.type, Fixed):
            return None
        return -(2.0 ** (WORD_BITS - found.type.frac))

    def is_folded(self, tensor: str) -> bool:
        """Whether the tensor holds the same values for every input."""
        return tensor in self._folded

    def value_of(self, tensor: str, iss: Tensors, shape: tuple[int, ...]) -> NDArray[Any] | None:
        """The observed raw integers in the ONNX shape; a view shows what it is a view of. None if not observed."""
        tensor = self.source_of(tensor, iss)
        return iss[tensor].reshape(shape) if tensor in iss else None

    def source_of(self, tensor: str, iss: Tensors) -> str:
        """The tensor itself where it is observed, else what it is a view of."""
        while tensor not in iss and tensor in self._views:
            tensor = self._views[tensor]
        return tensor

    def _source(self, tensor: str) -> str:
        while tensor not in self._types and tensor in self._views:
            tensor = self._views[tensor]
        return tensor


def graph_views(compiled: Compiled) -> dict[str, str]:
    """Output → input of the typed nodes that share bytes; those within a custom operator the model does not know."""
    return {node.outputs[0]: node.inputs[0] for node in compiled.graph.nodes if node.op in VIEW_OPS}


def _made(compiled: Compiled) -> set[str]:
    """What a program shows under its own name."""
    buffers, debug = {each.name for each in program_buffers(compiled.program)}, compiled.program.debug
    taps = {each.tensor for each in debug.taps}
    others = {each.tensor for each in debug.derived} | {each.tensor for each in debug.moved}
    return buffers | taps | others | {name for node in compiled.graph.nodes for name in node.outputs}


def with_viewed(compiled: Compiled, ort: Tensors) -> Tensors:
    """ORT's tensors, also under the names of tensors that ORT has not but one of its own is a view of."""
    views = graph_views(compiled)
    found = dict(ort)
    for name in views:
        source = name
        while source in views:
            source = views[source]
        if name in ort:
            found.setdefault(source, ort[name])
    return found


def encode_ort(buffer: Buffer, values: NDArray[Any]) -> NDArray[Any]:
    """An ORT tensor as the raw integers of a buffer: integers pass, reals are encoded."""
    if values.dtype.kind in "biu" and buffer.decode.kind == "q":
        return values.astype(NUMPY_DTYPE[buffer.dtype])
    return encode_real(buffer.decode, values, buffer.dtype)


def input_lsb(model: onnx.ModelProto, buffer: Buffer) -> float:
    """The step of the QuantizeLinear that reads the input, else one LSB of the input's own type."""
    constants = {each.name: each for each in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] == buffer.name and node.input[1] in constants:
            return float(onnx.numpy_helper.to_array(constants[node.input[1]]).reshape(-1)[0])
    return 2.0**-buffer.decode.frac if buffer.decode.kind == "fx" else float(buffer.decode.scale[0])


def _tensor_types(compiled: Compiled) -> dict[str, TensorType]:
    """The typed graph's types, and for what it does not know those of the debug map."""
    program = compiled.program
    types = {tap.tensor: _decoded_type(tap.decode, tap.operand.dtype) for tap in program.debug.taps}
    types.update({each.name: _decoded_type(each.decode, each.dtype) for each in program_buffers(program)})
    known = {name: tensor.type for name, tensor in compiled.graph.tensors.items()}
    return {**types, **{name: kind for name, kind in known.items() if not isinstance(kind, Float)}}


def _decoded_type(decode: Decode, dtype: str) -> TensorType:
    if decode.kind == "fx":
        return Fixed(decode.frac)
    if decode.kind == "q":
        axis = decode.axis if len(decode.scale) > 1 else None
        return Quantized(GRAPH_TYPES[dtype], decode.scale, decode.zero_point, axis)
    return Integer(GRAPH_TYPES[dtype])


def _views(model: onnx.ModelProto) -> dict[str, str]:
    """Output → input of the nodes that only rename or reshape."""
    return {node.output[0]: node.input[0] for node in model.graph.node if node.op_type in VIEW_OPS}


def _input_independent(model: onnx.ModelProto) -> set[str]:
    constant = {each.name for each in model.graph.initializer} | {""}
    for node in model.graph.node:
        if node.op_type in STATIC_OPS or all(name in constant for name in node.input):
            constant.update(node.output)
    return constant
