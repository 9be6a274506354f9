"""ONNX Runtime as the reference: optimisations off, one thread, every node output visible; and its speed.

Owns the session settings: a comparison with ORT means these, because ORT at higher levels fuses and then differs
from itself.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from epu.onnx_shapes import graph_inputs, shape_of, static_shape
from epu.ort_session import InputSpec, Session, input_specs, open_session, run_session

Tensors = dict[str, NDArray[Any]]

CPU_FLAGS = ("avx2", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "amx_int8")


@dataclass(frozen=True)
class OrtTiming:
    """Median seconds of one run of the plain model on one thread, after a warm-up."""

    unoptimised: float  # ORT_DISABLE_ALL, the reference
    default: float  # ORT's own default level


class OrtReference:
    """An ONNX model under ORT's reference settings.

    ``run`` returns every tensor that a node of the model produces, and the inputs, by name.
    Raises UserError where ORT cannot load or run the model.
    """

    def __init__(self, model: onnx.ModelProto, name: str = "model") -> None:
        self.model = model
        self.name = name
        self._session = open_session(_expose_all(model).SerializeToString(), name, "ORT_DISABLE_ALL")

    @property
    def version(self) -> str:
        return str(onnxruntime.__version__)

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        return input_specs(self._session)

    def typed(self, inputs: Mapping[str, NDArray[Any]]) -> Tensors:
        """The inputs with reals in the precision that the model declares; integers and unknown names as they are."""
        reals = {each.name: each.dtype for each in self.inputs if each.dtype.kind == "f"}
        return {name: np.asarray(array, reals.get(name)) for name, array in inputs.items()}

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Tensors:
        """Every node output of the model, and the inputs, by tensor name."""
        names = [each.name for each in self._session.get_outputs()]
        values = run_session(self._session, self.name, inputs)
        return {**inputs, **dict(zip(names, map(np.asarray, values), strict=True))}


def time_plain(path: str | os.PathLike[str], inputs: Mapping[str, NDArray[Any]], repeats: int = 5) -> OrtTiming:
    """Time the model itself, without exposed tensors, at both levels."""
    return OrtTiming(
        unoptimised=_median_seconds(plain_session(path), inputs, repeats),
        default=_median_seconds(plain_session(path, "ORT_ENABLE_ALL"), inputs, repeats),
    )


def plain_session(model: str | os.PathLike[str] | onnx.ModelProto, level: str = "ORT_DISABLE_ALL") -> Session:
    """A one-thread session of the model as it is."""
    if isinstance(model, onnx.ModelProto):
        return open_session(model.SerializeToString(), model.graph.name, level)
    return open_session(os.fspath(model), Path(model).name, level)


def cpu_description() -> str:
    """CPU model and the flags that decide which kernels ORT uses."""
    text = _cpuinfo()
    flags = set(_field(text, "flags").split())
    model = _field(text, "model name") or platform.processor() or platform.machine()
    return f"{model} ({' '.join(flag for flag in CPU_FLAGS if flag in flags) or 'no flags known'})"


def _median_seconds(session: Session, inputs: Mapping[str, NDArray[Any]], repeats: int) -> float:
    run_session(session, "model", inputs)
    return statistics.median(seconds_of_one_run(session, inputs) for _ in range(repeats))


def seconds_of_one_run(session: Session, inputs: Mapping[str, NDArray[Any]]) -> float:
    """Wall-clock seconds of one inference."""
    start = time.perf_counter()
    run_session(session, "model", inputs)
    return time.perf_counter() - start


def _expose_all(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose graph outputs are all node outputs; typed where the model or shape inference knows the type."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    known = {value.name: value for value in [*model.graph.value_info, *model.graph.output]}
    names = dict.fromkeys(name for node in model.graph.node for name in node.output if name)
    del exposed.graph.output[:]
    exposed.graph.output.extend(known.get(name) or onnx.ValueInfoProto(name=name) for name in names)
    return exposed


def declared_inputs(model: onnx.ModelProto) -> tuple[InputSpec, ...]:
    """The inputs that a caller must feed, as the model with static shapes declares them."""
    return tuple(
        InputSpec(each.name, static_shape(each) or (), _numpy_type(each.type.tensor_type.elem_type))
        for each in graph_inputs(model)
    )


def declared_outputs(model: onnx.ModelProto) -> dict[str, InputSpec]:
    """The outputs by name, with -1 for what only a run tells of their shapes."""
    return {
        each.name: InputSpec(
            each.name,
            tuple(d if isinstance(d, int) else -1 for d in shape_of(each) or ()),
            _numpy_type(each.type.tensor_type.elem_type),
        )
        for each in model.graph.output
    }


def _numpy_type(element: int) -> np.dtype[Any]:
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element))


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def _field(text: str, name: str) -> str:
    lines = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return next((value.strip() for key, value in lines if key.strip() == name), "")
