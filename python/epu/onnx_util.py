"""What users need of ONNX files: ``load_model``, ``fix_shapes``, ``cut_onnx``, ``save_model``."""

from __future__ import annotations

from epu.onnx_cut import cut_onnx
from epu.onnx_load import load_model, save_model
from epu.onnx_shapes import fix_shapes

__all__ = ["cut_onnx", "fix_shapes", "load_model", "save_model"]
