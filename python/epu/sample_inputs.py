"""Inputs for a job where the user gives none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Graph
from epu.raw_tensors import Arrays
from epu.simulator.fixed_point import NUMPY_DTYPE
from epu.simulator.program import Buffer, Program
from epu.stages import Chain

SAMPLE_SEED = 0

Limits = tuple[float, float] | None


def zeros(program: Program) -> Arrays:
    """An all-zero sample."""
    return {each.name: np.zeros(each.shape, _buffer_type(each)) for each in program.inputs}


def sample_inputs(program: Program, graph: Graph) -> Arrays:
    """A seeded sample: floats normal within the calibrated range, a third of it one standard deviation; see ``_whole``."""
    limits = {name: graph.tensor(name).range for name in zeros(program)}
    return _normal(zeros(program), limits)


def sample_of(chain: Chain) -> Arrays:
    """The same for a chain of stages."""
    arrays = {
        name: np.zeros(place.shape, _buffer_type(place) if isinstance(place, Buffer) else place.dtype)
        for name, place in chain.inputs.items()
    }
    tensors = {name: tensor for stage in chain.epu for name, tensor in stage.compiled.graph.tensors.items()}
    return _normal(arrays, {name: tensors[name].range for name in arrays if name in tensors})


def _normal(arrays: Arrays, limits: dict[str, Limits]) -> Arrays:
    random = np.random.default_rng(SAMPLE_SEED)
    return {
        name: _sample(random, array.shape, limits.get(name)) if array.dtype.kind == "f" else _whole(random, array)
        for name, array in arrays.items()
    }


def _whole(random: np.random.Generator, array: NDArray[Any]) -> NDArray[Any]:
    """Codes of 8 bits from all of their range; wider integers and booleans 0 or 1, as in synthetic calibration.

    All 0 would hide a fault: a mask of zeros leaves nothing to compute.
    """
    info = np.iinfo(array.dtype) if array.dtype.itemsize == 1 and array.dtype.kind in "iu" else None
    low, high = (info.min, info.max) if info else (0, 1)
    return random.integers(low, high, array.shape, np.int64, endpoint=True).astype(array.dtype)


def _buffer_type(buffer: Buffer) -> np.dtype[Any]:
    """What ONNX Runtime takes for the buffer."""
    return np.dtype(np.float32) if buffer.decode.kind == "fx" else NUMPY_DTYPE[buffer.dtype]


def _sample(random: np.random.Generator, shape: tuple[int, ...], limits: Limits) -> NDArray[np.float32]:
    low, high = limits or (-1.0, 1.0)
    values = (low + high) / 2 + (high - low) / 6 * random.standard_normal(shape)
    return np.clip(values, low, high).astype(np.float32)
