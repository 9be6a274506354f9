"""Tensor ranges: the .tranges file.

A .tranges file is one JSON object, ``{"tensor name": [low, high], ...}``, in graph order: one entry for every float
tensor of the model that is no initializer, its lowest and highest value over the calibration samples.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from epu.errors import UserError
from epu.files import write_bytes
from epu.names import near

Range = tuple[float, float]
Ranges = dict[str, Range]


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
