"""ONNX Runtime's static quantiser, given ranges: symmetric int8, QOperator or QDQ."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationMethod, QuantType
from onnxruntime.quantization.calibrate import TensorsData
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import QuantizationMode
from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

from epu.errors import UserError
from epu.log import get_logger

log = get_logger("quantize")

FORMATS = ("qoperator", "qdq")
LARGEST = float(np.finfo(np.float32).max) / 4  # so that high - low stays finite in float32
SYMMETRIC = {"ActivationSymmetric": True, "WeightSymmetric": True}


def quantize(
    model: onnx.ModelProto,
    ranges: Mapping[str, tuple[float, float]],
    excluded: list[str],
    *,
    format: str = "qoperator",
    per_channel: bool = False,
) -> onnx.ModelProto:
    """Return the model with symmetric int8 activations and weights, scales from ``ranges``.

    ``excluded`` nodes stay float. This is what ``quantize_static`` does after its calibration; that calibration is
    not used because it takes NaN into scales and keeps every sample's outputs.
    """
    check_format(format)
    limits = {name: tuple(np.clip(pair, -LARGEST, LARGEST).astype(np.float32)) for name, pair in ranges.items()}
    data = TensorsData(CalibrationMethod.MinMax, {k: tuple(map(np.asarray, v)) for k, v in limits.items()})
    op_types = sorted({*QLinearOpsRegistry, *QDQRegistry})
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    int8 = QuantType.QInt8
    with _quiet():
        if format == "qdq":
            quantizer = QDQQuantizer(copy, per_channel, False, int8, int8, data, [], excluded, op_types, SYMMETRIC)
        else:
            mode = QuantizationMode.QLinearOps
            quantizer = ONNXQuantizer(
                copy, per_channel, False, mode, True, int8, int8, data, [], excluded, op_types, dict(SYMMETRIC)
            )
        return _model_of(quantizer.quantize_model())


def check_format(format: str) -> None:
    """Raise UserError for a format that is not known."""
    if format not in FORMATS:
        raise UserError(f"format must be one of {', '.join(FORMATS)}, found '{format}'.")


def _model_of(result: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of our own with the nodes in order."""
    model = onnx.ModelProto()
    model.CopyFrom(result)
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Pass ONNX Runtime's remarks on the root logger (advice for x64, not for the EPU) to our log at DEBUG."""

    def divert(record: logging.LogRecord) -> bool:
        log.debug("onnxruntime: %s", record.getMessage())
        return False

    root = logging.getLogger()
    silent = logging.NullHandler()  # keeps logging.warning from configuring the root logger
    root.addHandler(silent)
    root.addFilter(divert)
    try:
        yield
    finally:
        root.removeFilter(divert)
        root.removeHandler(silent)
