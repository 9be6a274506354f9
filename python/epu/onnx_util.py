"""ONNX files and shapes: loading with checks, fixing dynamic shapes, saving; ``cut_onnx`` is re-exported here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Union

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]
from onnx import external_data_helper, numpy_helper

from epu.errors import UserError
from epu.files import write_bytes

ModelSource = Union[str, "os.PathLike[str]", onnx.ModelProto]
Shapes = Mapping[str, Sequence[int]]

FLOAT_TYPES = frozenset(
    getattr(onnx.TensorProto, name) for name in ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16")
)  # types that can hold NaN and infinity
_IR_VERSION_TAG = 0x08  # first byte of a serialised ModelProto: field 1, ir_version


def load_model(source: ModelSource, *, shapes: Shapes | None = None, allow_dynamic: bool = False) -> onnx.ModelProto:
    """Return the checked model of a path or proto, its weights in memory and its shapes inferred.

    ``shapes`` fixes dynamic inputs, e.g. ``{"x": (1, 3, 224, 224)}``. A proto given is not changed. Raises UserError
    for: a missing, truncated or foreign file; external data that is missing or outside the model's folder; NaN or
    infinity in a weight; an input that is no tensor, or that has a dynamic dimension unless ``allow_dynamic``.
    """
    if isinstance(source, onnx.ModelProto):
        model = onnx.ModelProto()
        model.CopyFrom(source)
        folder = None
    else:
        model = _parse(Path(source))
        folder = Path(source).parent
    title = "the model given" if folder is None else f"'{source}'"
    _load_external_data(model, folder, title)
    _check_weights(model, title)
    if shapes:
        return fix_shapes(model, shapes, allow_dynamic=allow_dynamic)
    if not allow_dynamic:
        check_static(model)
    return infer_shapes(model)


def _parse(path: Path) -> onnx.ModelProto:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"'{path}' does not exist. Give the path of an ONNX file.") from error
    except OSError as error:
        raise UserError(f"'{path}' cannot be read: {error.strerror}. Give the path of an ONNX file.") from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise UserError(_damage(path, data)) from error
    if not model.graph.node or not model.opset_import:
        raise UserError(_damage(path, data))
    return model


def _damage(path: Path, data: bytes) -> str:
    if data[:1] == bytes([_IR_VERSION_TAG]):
        return f"'{path}' is a truncated or damaged ONNX file ({len(data):,} bytes). Export or download it again."
    return f"'{path}' is not an ONNX file ({len(data):,} bytes). Give a model exported to ONNX."


def tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield each constant of the graph and its subgraphs: initializers and tensor attributes, named where possible."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                if not attribute.t.name:
                    attribute.t.name = node.output[0]
                yield attribute.t
            if attribute.HasField("g"):
                yield from tensors_of(attribute.g)


def _load_external_data(model: onnx.ModelProto, folder: Path | None, title: str) -> None:
    external = [t for t in tensors_of(model.graph) if external_data_helper.uses_external_data(t)]
    for tensor in external:
        location = external_data_helper.ExternalDataInfo(tensor).location
        where = f"{title}: initializer '{tensor.name}' keeps its data in '{location}'"
        if folder is None:
            raise UserError(f"{where}, but a model in memory has no folder. Give the path of the model file instead.")
        file = (folder / location).resolve()
        if Path(location).is_absolute() or not file.is_relative_to(folder.resolve()):
            raise UserError(
                f"{where}, outside the model's folder. Only files in that folder are read: "
                "move the data beside the model and export it again with a relative location."
            )
        if not file.is_file():
            raise UserError(f"{where}, which does not exist. Copy that file beside the model.")
        _read_external(tensor, folder, where)


def _read_external(tensor: onnx.TensorProto, folder: Path, where: str) -> None:
    try:
        external_data_helper.load_external_data_for_tensor(tensor, str(folder))
    except (ValueError, OSError, onnx.checker.ValidationError) as error:
        raise UserError(f"{where}, which cannot be read: {error}. Copy that file again.") from error
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _check_weights(model: onnx.ModelProto, title: str) -> None:
    for tensor in tensors_of(model.graph):
        if tensor.data_type not in FLOAT_TYPES:
            continue
        values = _values(tensor, title)
        bad = int(values.size - np.count_nonzero(np.isfinite(values)))
        if bad:
            raise UserError(
                f"{title}: initializer '{tensor.name}' has {bad} NaN or infinite of {values.size} values. "
                "Every weight must be finite: export the model again from a healthy checkpoint."
            )


def _values(tensor: onnx.TensorProto, title: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    try:
        return numpy_helper.to_array(tensor).astype(np.float32)
    except ValueError as error:
        raise UserError(
            f"{title}: initializer '{tensor.name}' of shape {list(tensor.dims)} has data of another size. "
            "The file is damaged: export or download it again."
        ) from error


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
    """Return a copy with the types and shapes of all tensors that ONNX can infer.

    Raises UserError where the declared shapes contradict each other.
    """
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise UserError(f"the shapes of the model contradict each other: {error}. Export the model again.") from error


def value_types(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Return what the model says of each tensor's type: inputs, intermediate tensors and outputs, by name."""
    graph = model.graph
    return {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of the main ONNX operator set."""
    return next(int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx"))


def save_model(model: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    """Write the model, whole or not at all. Raises UserError if the file cannot be written or passes 2 GB."""
    try:
        data = model.SerializeToString(deterministic=True)
    except (EncodeError, ValueError) as error:
        raise UserError(f"'{path}': a model of more than 2 GB does not fit one ONNX file. Cut it first.") from error
    write_bytes(path, data)


def near(name: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown name: the nearest known ones, or the first few."""
    names = sorted(set(known))
    matches = get_close_matches(name, names, n=3, cutoff=0.6)
    if matches:
        return f"Did you mean {' or '.join(map(repr, matches))}?"
    shown = ", ".join(map(repr, names[:8]))
    return f"Known: {shown}{', …' if len(names) > 8 else ''}."
