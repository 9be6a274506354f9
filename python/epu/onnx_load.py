"""ONNX files: loading with checks, saving whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import external_data_helper, numpy_helper

from epu.errors import UserError
from epu.files import write_bytes
from epu.onnx_order import sort_nodes
from epu.onnx_shapes import Shapes, check_static, fix_shapes, infer_shapes

ModelSource = Union[str, "os.PathLike[str]", onnx.ModelProto]

FLOAT_TYPES = frozenset(
    getattr(onnx.TensorProto, name) for name in ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16")
)  # types that can hold NaN and infinity
_IR_VERSION_TAG = 0x08  # first byte of a serialised ModelProto: field 1, ir_version


def load_model(source: ModelSource, *, shapes: Shapes | None = None, allow_dynamic: bool = False) -> onnx.ModelProto:
    """Return the checked model of a path or proto, its weights in memory, its nodes in order and its shapes inferred.

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
    sort_nodes(model)
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
    except Exception as error:  # DecodeError of google.protobuf, which onnx does not re-export
        raise UserError(_damage(path, data)) from error
    if model.opset_import and not model.graph.node:
        raise UserError(f"'{path}' has no nodes: there is nothing to compute. Give a model with at least one.")
    if not model.opset_import:
        raise UserError(_damage(path, data))
    return model


def _damage(path: Path, data: bytes) -> str:
    if data[:1] == bytes([_IR_VERSION_TAG]):
        return f"'{path}' is a truncated or damaged ONNX file ({len(data):,} bytes). Export or download it again."
    return f"'{path}' is not an ONNX file ({len(data):,} bytes). Give a model exported to ONNX."


def tensors_of(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield name and data of each constant of the graph and its subgraphs: initializers and tensor attributes."""
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield node.output[0], attribute.t
            if attribute.HasField("g"):
                yield from tensors_of(attribute.g)


def _load_external_data(model: onnx.ModelProto, folder: Path | None, title: str) -> None:
    for name, tensor in tensors_of(model.graph):
        if not external_data_helper.uses_external_data(tensor):
            continue
        location = external_data_helper.ExternalDataInfo(tensor).location
        where = f"{title}: initializer '{name}' keeps its data in '{location}'"
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
    for name, tensor in tensors_of(model.graph):
        values = _values(name, tensor, title)
        if tensor.data_type not in FLOAT_TYPES:
            continue
        values = values.astype(np.float64)
        bad = int(values.size - np.count_nonzero(np.isfinite(values)))
        if bad:
            raise UserError(
                f"{title}: initializer '{name}' has {bad} NaN or infinite of {values.size} values. "
                "Every weight must be finite: export the model again from a healthy checkpoint."
            )


def _values(name: str, tensor: onnx.TensorProto, title: str) -> NDArray[Any]:
    try:
        return numpy_helper.to_array(tensor)
    except ValueError as error:
        raise UserError(
            f"{title}: initializer '{name}' of shape {list(tensor.dims)} has data of another size. "
            "The file is damaged: export or download it again."
        ) from error


def save_model(model: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    """Write the model, whole or not at all. Raises UserError if the file cannot be written or passes 2 GB."""
    try:
        data = model.SerializeToString(deterministic=True)
    except Exception as error:  # EncodeError or ValueError, by the version of google.protobuf
        raise UserError(f"'{path}': a model of more than 2 GB does not fit one ONNX file. Cut it first.") from error
    write_bytes(path, data)
