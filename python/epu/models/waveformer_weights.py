"""WaveFormer's trained parameters on disk: matrices as int8 with one scale each, the rest float32.

Weight quantisation of the float network finds the same int8 values again, so that the file loses nothing of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from epu.raw_tensors import load_arrays, save_arrays

Array = NDArray[np.float32]

WEIGHTS_FILE = Path(__file__).parent / "data" / "waveformer_weights.npz"
LARGEST_CODE = 127
SCALE = ".scale"  # what the scale's entry adds to the name of its matrix


def load_weights(path: str | os.PathLike[str] = WEIGHTS_FILE) -> dict[str, Array]:
    """Return the float32 parameters by PyTorch name."""
    entries = load_arrays(path)
    return {
        name: array.astype(np.float32) * entries[name + SCALE] if array.dtype == np.int8 else array
        for name, array in entries.items()
        if not name.endswith(SCALE)
    }


def save_weights(path: str | os.PathLike[str], weights: Mapping[str, Array]) -> None:
    """Write the parameters; whatever has more than one row is rounded to int8."""
    entries: dict[str, NDArray[np.generic]] = {}
    for name, array in weights.items():
        if array.ndim == 1 or array.shape[0] == 1:
            entries[name] = array
            continue
        scale = np.float32(np.abs(array).max() / LARGEST_CODE)
        entries[name] = np.rint(array / scale).astype(np.int8)
        entries[name + SCALE] = np.asarray(scale)
    save_arrays(path, entries)
