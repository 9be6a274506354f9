"""Sessions of ONNX Runtime and what they take. Needs no onnx, so that a saved job runs without it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from epu.errors import UserError

Session = Any  # onnxruntime has no types

SILENT = 4  # ORT's severity "fatal": warnings about unused initialisers are not the user's concern


@dataclass(frozen=True)
class InputSpec:
    """One graph input as ORT declares it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def input_specs(session: Session) -> tuple[InputSpec, ...]:
    """The inputs of a session as ORT declares them."""
    return tuple(_input_spec(each) for each in session.get_inputs())


def run_session(session: Session, name: str, inputs: Mapping[str, NDArray[Any]]) -> list[Any]:
    """The outputs in the session's order. Raises UserError where ORT cannot run the model."""
    try:
        return list(session.run(None, dict(inputs)))
    except Exception as error:  # ORT raises its own classes and RuntimeError alike
        raise UserError(f"'{name}': onnxruntime cannot run the model: {reason(error)}") from error


def open_session(source: bytes | str, name: str, level: str = "ORT_DISABLE_ALL") -> Session:
    """A one-thread session of a serialised model or a file. Raises UserError where ORT refuses it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = SILENT
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise UserError(f"'{name}': onnxruntime cannot load the model: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return the message of an ONNX Runtime error on one line, without its code and source place."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error).strip())
    text = re.sub(r"/\S*onnxruntime\S*:\d+ .*?\) ", "", text)
    return " ".join(text.split()).rstrip(".")


def _input_spec(argument: Any) -> InputSpec:
    dtypes = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}
    name = dtypes.get(argument.type) or argument.type.removeprefix("tensor(").removesuffix(")")
    shape = tuple(size if isinstance(size, int) else -1 for size in argument.shape)
    return InputSpec(argument.name, shape, np.dtype(name))
