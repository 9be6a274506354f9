"""Observes the ranges of a model's float tensors, sample by sample, in memory that does not grow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from epu.custom_bodies import open_bodies
from epu.log import get_logger
from epu.quantization.npz import Sample
from epu.quantization.session import open_session, run, tensor_types
from epu.ranges import Range, Ranges

log = get_logger("quantize")

FALLBACK: Range = (-1.0, 1.0)  # of a tensor that is always zero, or never finite
_REDUCTIONS = ("ReduceMin", "ReduceMax", "ReduceL1")  # the last one is NaN or infinite where any element is


def float_tensors(model: onnx.ModelProto) -> list[str]:
    """Return the float32 inputs and node outputs in graph order, as ONNX Runtime types them."""
    return [name for name, (type, _) in tensor_types(model).items() if type == "tensor(float)"]


def observe_ranges(model: onnx.ModelProto, samples: Iterable[Sample]) -> Ranges:
    """Return the lowest and highest value of each float tensor over the samples, which are taken one at a time.

    The extremes are taken inside the session, so memory depends on neither the number of samples nor the size of the
    intermediate tensors. A tensor with NaN or infinity, or that is always zero, gets a finite range and a warning. Tensors
    within the bodies of custom operators are observed too.
    """
    model, _ = open_bodies(model)
    names = float_tensors(model)
    if not names:
        return {}  # integers from end to end
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
