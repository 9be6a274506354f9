"""Where the positions of a resized axis lie, and which neighbours they mix (ONNX Resize)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float32]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Axis:
    """One axis: its place, sizes before and after, the factor between them, and what of it is kept (of 0 to 1)."""

    index: int
    size: int
    out: int
    scale: float
    start: float = 0.0
    end: float = 1.0


def coordinates(mode: str, axis: Axis) -> Reals:
    """Where each output position lies on the input's axis, in float32 as ONNX Runtime counts."""
    x, one, half = np.arange(axis.out, dtype=np.float32), np.float32(1), np.float32(0.5)
    scale, size, out = np.float32(axis.scale), np.float32(axis.size), np.float32(axis.out)
    if mode == "align_corners":
        return x * (size - one) / (out - one) if axis.out > 1 else 0 * x
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_crop_and_resize":
        start, end = np.float32(axis.start), np.float32(axis.end)
        if axis.out == 1:
            return half * (start + end) * (size - one) + 0 * x
        return start * (size - one) + x * (end - start) * (size - one) / (out - one)
    if mode == "pytorch_half_pixel" and axis.out == 1:
        return 0 * x
    offset = size * half * (one - out / (scale * size)) if mode == "half_pixel_symmetric" else np.float32(0)
    found: Reals = offset + (x + half) / scale - half
    return found


def outside(found: Reals, axis: Axis) -> NDArray[np.bool_]:
    """Which positions lie beyond the input."""
    return np.asarray((found < 0) | (found > axis.size - 1))


def _half_down(x: Reals) -> Reals:
    return np.asarray(np.ceil(x - np.float32(0.5)), np.float32)


def _half_up(x: Reals) -> Reals:
    return np.asarray(np.floor(x + np.float32(0.5)), np.float32)


ROUNDINGS: dict[str, Callable[[Reals], Any]] = {
    "round_prefer_floor": _half_down,
    "round_prefer_ceil": _half_up,
    "floor": np.floor,
    "ceil": np.ceil,
}


def weights(mode: str, found: Reals, axis: Axis, cubic: float, antialias: bool, exclude_outside: bool) -> Reals:
    """[out, size]: how much of each input position an output position takes."""
    kernel = _triangle if mode == "linear" else lambda distance: _keys(distance, cubic)
    reach = 1 if mode == "linear" else 2
    stretch = max(1.0, 1.0 / axis.scale) if antialias else 1.0
    matrix = np.zeros((axis.out, axis.size))
    for row, place in zip(matrix, found.astype(np.float64)):
        taps = np.arange(np.floor(place - reach * stretch), np.ceil(place + reach * stretch) + 1).astype(np.int64)
        shares = kernel(np.abs(taps - place) / stretch)
        if exclude_outside:
            shares = np.where((taps >= 0) & (taps < axis.size), shares, 0.0)
        if shares.any():  # else nothing of the input is in reach
            np.add.at(row, np.clip(taps, 0, axis.size - 1), shares / shares.sum())
    return matrix.astype(np.float32)


def _triangle(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(1 - distance, 0.0)


def _keys(x: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    """Keys' cubic convolution (1981)."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))
