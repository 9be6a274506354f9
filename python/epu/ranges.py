"""Tensor ranges: the .tranges file, and observing the ranges of a model's float tensors sample by sample.

A .tranges file is one JSON object, ``{"tensor name": [low, high], ...}``, in graph order: one entry for every float
tensor of the model that is no initializer, its lowest and highest value over the calibration samples.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from epu.errors import UserError
from epu.files import write_bytes
from epu.log import get_logger
from epu.onnx_util import near
from epu.quantization.session import open_session, run, tensor_types

Range = tuple[float, float]
Ranges = dict[str, Range]
Sample = dict[str, NDArray[Any]]

log = get_logger("quantize")

FALLBACK: Range = (-1.0, 1.0)  # of a tensor that is always zero, or never finite
_REDUCTIONS = ("ReduceMin", "ReduceMax", "ReduceL1")  # the last one is NaN or infinite where any element is


def load_ranges(path: str | os.PathLike[str]) -> Ranges:
    """Return the ranges of a .tranges file. Raises UserError if the file is missing or malformed."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"'{path}' does not exist. Write it with epu quantize.") from error
    except (OSError, ValueError) as error:
        raise UserError(f"'{path}' is not a .tranges file: {error}. Write it anew with epu quantize.") from error
    if not isinstance(content, dict):
        raise UserError(f"'{path}' must hold one JSON object, found {type(content).__name__}. Write it anew.")
    return {name: _entry(path, name, value) for name, value in content.items()}


def _entry(path: str | os.PathLike[str], name: str, value: Any) -> Range:
    numbers = isinstance(value, list) and len(value) == 2 and all(type(v) in (int, float) for v in value)
    if not numbers or not all(math.isfinite(v) for v in value) or value[0] > value[1]:
        raise UserError(
            f"'{path}': the range of tensor '{name}' must be [low, high] of finite numbers, low <= high, "
            f"found {value!r}. Write the file anew with epu quantize."
        )
    return float(value[0]), float(value[1])


def save_ranges(ranges: Mapping[str, Range], path: str | os.PathLike[str]) -> None:
    """Write a .tranges file, whole or not at all."""
    text = json.dumps({name: list(pair) for name, pair in ranges.items()}, indent=1, ensure_ascii=False)
    write_bytes(path, (text + "\n").encode())


def require(ranges: Mapping[str, Range], tensor: str, node: str) -> Range:
    """Return the range of a tensor; raises UserError that names the node which needs it where there is none."""
    if tensor in ranges:
        return ranges[tensor]
    raise UserError(
        f"ONNX node '{node}': the .tranges file has no range for its tensor '{tensor}' ({len(ranges)} entries). "
        f"{near(tensor, ranges)} Write the file anew from the same model with epu quantize."
    )


def float_tensors(model: onnx.ModelProto) -> list[str]:
    """Return the float32 inputs and node outputs in graph order, as ONNX Runtime types them."""
    return [name for name, (type, _) in tensor_types(model).items() if type == "tensor(float)"]


def observe_ranges(model: onnx.ModelProto, samples: Iterable[Sample]) -> Ranges:
    """Return the lowest and highest value of each float tensor over the samples, which are taken one at a time.

    The extremes are taken inside the session, so memory depends on neither the number of samples nor the size of the
    intermediate tensors. A tensor with NaN or infinity, or that is always zero, gets a finite range and a warning.
    """
    names = float_tensors(model)
    session = open_session(_with_reductions(model, names))
    outputs = _reduction_outputs(len(names))
    bounds = np.tile([[np.inf], [-np.inf]], (1, len(names)))
    spoilt: set[str] = set()
    for index, sample in enumerate(samples):
        low, high, total = np.array(run(session, outputs, sample, index), np.float64).reshape(-1, len(names))
        suspects = [names[i] for i in np.flatnonzero(~np.isfinite([low, high, total]).all(axis=0))]
        for name, (finite, pair) in _look_closer(model, suspects, sample, index).items():
            low[names.index(name)], high[names.index(name)] = pair
            spoilt |= set() if finite else {name}
        bounds = np.stack([np.minimum(bounds[0], low), np.maximum(bounds[1], high)])
    return {name: _usable(name, a, b, name in spoilt) for name, a, b in zip(names, *bounds.tolist(), strict=True)}


def _with_reductions(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """Return a copy whose only outputs are the reductions of the tensors, in the order of _reduction_outputs."""
    reduced = onnx.ModelProto()
    reduced.CopyFrom(model)
    outputs = _reduction_outputs(len(names))
    operations = [(op, name) for op in _REDUCTIONS for name in names]
    nodes = [helper.make_node(op, [name], [to], keepdims=0) for (op, name), to in zip(operations, outputs, strict=True)]
    reduced.graph.node.extend(nodes)
    del reduced.graph.output[:]
    reduced.graph.output.extend(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, []) for name in outputs)
    return reduced


def _reduction_outputs(count: int) -> list[str]:
    return [f"epu.{op}.{index}" for op in _REDUCTIONS for index in range(count)]


def _look_closer(
    model: onnx.ModelProto, names: list[str], sample: Sample, index: int
) -> dict[str, tuple[bool, tuple[float, float]]]:
    """Return for each tensor whether all its elements are finite, and the extremes of those that are."""
    if not names:
        return {}
    inputs = {name: sample[name] for name in names if name in sample}
    inner = [name for name in names if name not in inputs]
    tensors = dict(inputs)
    if inner:
        tensors |= dict(zip(inner, run(open_session(model, inner), inner, sample, index), strict=True))
    return {name: (bool(np.isfinite(tensors[name]).all()), _extremes(tensors[name])) for name in names}


def _extremes(tensor: NDArray[Any]) -> tuple[float, float]:
    finite = tensor[np.isfinite(tensor)]
    return float(finite.min(initial=np.inf)), float(finite.max(initial=-np.inf))


def _usable(name: str, low: float, high: float, spoilt: bool) -> Range:
    if low > high:
        log.warning(
            "Tensor '%s' has no finite value in any calibration sample: its range is taken as %s", name, FALLBACK
        )
        return FALLBACK
    if low == high == 0:
        log.warning("Tensor '%s' is zero in all calibration samples: its range is taken as %s", name, FALLBACK)
        return FALLBACK
    if spoilt:
        log.warning("Tensor '%s' holds NaN or infinity: its range [%g, %g] is of the finite values", name, low, high)
    return low, high
