"""Model generators: networks built with ``onnx.helper``, no download and no framework."""

from __future__ import annotations

from epu.models.detr import detr_encoder, detr_inputs
from epu.models.semg import GESTURES, waveformer_windows
from epu.models.waveformer import waveformer, waveformer_int8_file

__all__ = [
    "GESTURES",
    "detr_encoder",
    "detr_inputs",
    "waveformer",
    "waveformer_int8_file",
    "waveformer_windows",
]
