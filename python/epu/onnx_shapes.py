"""Shapes and types of an ONNX model: reading them, fixing dynamic inputs, inferring the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from epu.errors import UserError
from epu.names import near
from epu.shape_values import shape_values

Shapes = Mapping[str, Sequence[int]]


def graph_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs a caller must feed: graph inputs that no initializer presets."""
    preset = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in preset]


def shape_of(value: onnx.ValueInfoProto) -> tuple[int | str, ...] | None:
    """Return the shape, a dynamic dimension as its name or ``"?"``; None where even the rank is unknown."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(d.dim_value if d.dim_value > 0 else d.dim_param or "?" for d in tensor.shape.dim)


def static_shape(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    """Return the shape, or None where any dimension is unknown."""
    shape = shape_of(value)
    if shape is None or any(isinstance(d, str) for d in shape):
        return None
    return tuple(int(d) for d in shape)


def check_static(model: onnx.ModelProto) -> None:
    """Raise UserError for a graph input that is no tensor or has a dynamic dimension."""
    for value in graph_inputs(model):
        if not value.type.HasField("tensor_type"):
            kind = value.type.WhichOneof("value")
            raise UserError(f"input '{value.name}' must be a tensor, found {kind}. Cut the model behind it.")
        shape = shape_of(value)
        if shape is None:
            raise UserError(f"input '{value.name}' has no shape. Fix it: --shape {value.name}=1,3,224,224.")
        for axis, dim in enumerate(shape):
            if isinstance(dim, str):
                raise UserError(_dynamic(value.name, shape, axis))


def _dynamic(name: str, shape: tuple[int | str, ...], axis: int) -> str:
    example = [str(d) if isinstance(d, int) else "1" if i == 0 else "224" for i, d in enumerate(shape)]
    given = ",".join(example)
    found = ", ".join(map(str, shape))
    return (
        f"input '{name}' has shape [{found}]: dimension {axis} ('{shape[axis]}') is dynamic, but each must be fixed. "
        f'Fix them, for instance: --shape {name}={given} or shapes={{"{name}": ({given.replace(",", ", ")})}}.'
    )


def fix_shapes(model: onnx.ModelProto, shapes: Shapes, *, allow_dynamic: bool = False) -> onnx.ModelProto:
    """Return a copy whose named inputs have the shapes given, every other shape inferred anew.

    Raises UserError for an unknown input, another rank, a contradiction with a fixed dimension, a dimension below 1,
    and, unless ``allow_dynamic``, for an input that stays dynamic.
    """
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    inputs = {value.name: value for value in graph_inputs(fixed)}
    for name, shape in shapes.items():
        if name not in inputs:
            raise UserError(f"shapes: the model has no input '{name}'. {near(name, inputs)}")
        _set_shape(inputs[name], tuple(shape))
    for value in (*fixed.graph.value_info, *fixed.graph.output):
        value.type.tensor_type.ClearField("shape")
    if not allow_dynamic:
        check_static(fixed)
    return infer_shapes(fixed)


def _set_shape(value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    declared = shape_of(value)
    fits = declared is None or (
        len(declared) == len(shape)
        and all(isinstance(d, str) or d == new for d, new in zip(declared, shape, strict=True))
    )
    if not fits or any(dim < 1 for dim in shape):
        raise UserError(
            f"shapes: input '{value.name}' is declared {list(declared or ())}, found {list(shape)}. "
            "Give the same number of dimensions, each at least 1, and keep those that are fixed."
        )
    value.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto())
    for dim in shape:
        value.type.tensor_type.shape.dim.add().dim_value = dim


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with the types and shapes of all tensors that can be inferred.

    Shapes that the model computes from other shapes are evaluated where ONNX shape inference gives up. Raises
    UserError where the declared shapes contradict each other.
    """
    inferred = _infer(model)
    known = -1
    while known < len(shapes := _static_shapes(inferred)) and not _complete(inferred, shapes):
        known = len(shapes)
        inferred = _infer_with(inferred, shape_values(inferred, shapes))
    return inferred


def _infer(model: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise UserError(f"the shapes of the model contradict each other: {error}. Export the model again.") from error


def _static_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    shapes = {name: static_shape(value) for name, value in value_types(model).items()}
    return {name: shape for name, shape in shapes.items() if shape is not None}


def _complete(model: onnx.ModelProto, shapes: Mapping[str, object]) -> bool:
    return all(name in shapes for node in model.graph.node for name in node.output if name)


def _infer_with(model: onnx.ModelProto, values: Mapping[str, NDArray[Any]]) -> onnx.ModelProto:
    """Infer as if ``values`` were initializers, and return the model with what that tells of its tensors."""
    presumed = onnx.ModelProto()
    presumed.CopyFrom(model)
    kept = [node for node in model.graph.node if not set(node.output) <= values.keys()]
    del presumed.graph.node[:]
    presumed.graph.node.extend(kept)
    presumed.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    told = value_types(_infer(presumed))
    result = onnx.ModelProto()
    result.CopyFrom(model)
    types = {**value_types(model), **told}
    outer = {value.name for value in (*result.graph.input, *result.graph.output)}
    for output in result.graph.output:
        output.CopyFrom(types[output.name])
    del result.graph.value_info[:]
    result.graph.value_info.extend(value for name, value in types.items() if name not in outer)
    return result


def value_types(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Return what the model says of each tensor's type: inputs, intermediate tensors and outputs, by name."""
    graph = model.graph
    return {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of the main ONNX operator set."""
    return next(int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
