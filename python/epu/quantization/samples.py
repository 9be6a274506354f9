"""Calibration samples: any stream of input dictionaries, checked against the model, readable twice in flat memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from epu.errors import UserError
from epu.names import near
from epu.onnx_shapes import graph_inputs, shape_of, static_shape
from epu.quantization.npz import NpzSamples, Sample


class CalibrationReader(Protocol):
    """What onnxruntime calls a CalibrationDataReader."""

    def get_next(self) -> Mapping[str, Any] | None: ...


CalibrationData = Iterable[Mapping[str, Any]] | CalibrationReader | str | Path


def synthetic_samples(model: onnx.ModelProto, count: int, seed: int) -> list[Sample]:
    """Return ``count`` random samples: floats standard normal (clipped to 4), integers and booleans 0 or 1.

    Raises UserError for a count below 1 or an input type that has no random values.
    """
    if count < 1:
        raise UserError(f"num_images must be at least 1, found {count}. Give a positive number.")
    random = np.random.default_rng(seed)
    return [{v.name: _synthetic(v, random) for v in graph_inputs(model)} for _ in range(count)]


def _synthetic(value: onnx.ValueInfoProto, random: np.random.Generator) -> NDArray[Any]:
    dtype = _dtype(value)
    shape = static_shape(value)
    assert shape is not None, "load_model lets no dynamic input pass"
    if dtype.kind == "f":
        return random.standard_normal(shape).clip(-4, 4).astype(dtype)
    if dtype.kind in "iub":
        return random.integers(0, 2, shape).astype(dtype)
    raise UserError(f"input '{value.name}' of type {dtype} has no synthetic data. Give calibration_data instead.")


def _dtype(value: onnx.ValueInfoProto) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))


class CheckedSamples:
    """An iterable over checked samples, as often as wanted, that never holds more than one.

    ``source`` is a list or other re-iterable of dictionaries, a generator, an onnxruntime CalibrationDataReader, or
    the path of an .npz file with one array [samples, *input shape] per input. What can be read only once is kept in a
    temporary file until ``close``. Raises UserError, while iterating, for a sample that does not fit the inputs, and
    for no sample at all.
    """

    def __init__(self, model: onnx.ModelProto, source: CalibrationData) -> None:
        self._inputs = {value.name: value for value in graph_inputs(model)}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._source: Iterable[Mapping[str, Any]]
        if isinstance(source, (str, Path)):
            shapes = {name: static_shape(value) or () for name, value in self._inputs.items()}
            self._source = NpzSamples(Path(source), shapes)
        elif hasattr(source, "get_next"):
            self._source = self._spool(iter(source.get_next, None))
        elif iter(source) is source:
            self._source = self._spool(source)
        else:
            self._source = source

    def __iter__(self) -> Iterator[Sample]:
        index = -1
        for index, sample in enumerate(self._source):
            yield _checked(sample, self._inputs, index)
        if index < 0:
            raise UserError("calibration_data has no sample. Give at least one dictionary of inputs.")

    def close(self) -> None:
        """Remove the temporary files."""
        if self._folder:
            self._folder.cleanup()

    def _spool(self, stream: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
        self._folder = tempfile.TemporaryDirectory(prefix="epu.calibration.")
        try:
            return _FileSamples([self._keep(sample, index) for index, sample in enumerate(stream)])
        except BaseException:
            self.close()
            raise

    def _keep(self, sample: Mapping[str, Any], index: int) -> Path:
        assert self._folder is not None
        file = Path(self._folder.name) / f"{index}.npz"
        np.savez(file, **_checked(sample, self._inputs, index))
        return file


class _FileSamples:
    """Samples of one .npz file each."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files

    def __iter__(self) -> Iterator[Sample]:
        for file in self._files:
            with np.load(file) as arrays:
                yield dict(arrays)


def _checked(sample: Mapping[str, Any], inputs: Mapping[str, onnx.ValueInfoProto], index: int) -> Sample:
    where = f"calibration sample {index}"
    if not isinstance(sample, Mapping):
        raise UserError(f"{where} must be a dictionary of input name to array, found {type(sample).__name__}.")
    for name in sample:
        if name not in inputs:
            raise UserError(f"{where} has '{name}', which is no input of the model. {near(name, inputs)}")
    for name in inputs:
        if name not in sample:
            raise UserError(f"{where} lacks input '{name}'. Give an array for each of: {', '.join(inputs)}.")
    return {name: _fitting(np.asarray(sample[name]), value, where) for name, value in inputs.items()}


def _fitting(array: NDArray[Any], value: onnx.ValueInfoProto, where: str) -> NDArray[Any]:
    dtype = _dtype(value)
    shape = static_shape(value)
    if array.shape != shape:
        raise UserError(
            f"{where}: input '{value.name}' must have shape {list(shape_of(value) or ())}, "
            f"found {list(array.shape)}. Reshape the sample or fix another shape with --shape."
        )
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise UserError(f"{where}: input '{value.name}' must be {dtype}, found {array.dtype}. Convert the sample.")
    return np.ascontiguousarray(array, dtype)
