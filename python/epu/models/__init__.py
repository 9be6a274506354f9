"""Model generators: networks built with ``onnx.helper`` and seeded weights, no download and no framework."""

from __future__ import annotations

from epu.models.detr import detr_encoder, detr_inputs

__all__ = ["detr_encoder", "detr_inputs"]
