"""The demo: a DETR encoder of our own from seeded weights to a validated program, all files kept."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from epu.files import whole_file, write_bytes
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.models import detr_encoder, detr_inputs
from epu.onnx_util import save_model
from epu.quantize import quadric_quantize
from epu.raw_tensors import save_arrays
from epu.report_html import report_html
from epu.reports import to_json
from epu.validate import Progress

CALIBRATION_SEEDS = (1, 2)
INPUT_SEED = 9
Show = Callable[[str], object]


def run_demo(folder: Path, hw_config: HWConfig, layers: int, show: Show, progress: Progress | None = None) -> bool:
    """Fill ``folder`` and show the tables; returns whether validation passed.

    Writes model.onnx, quantized.onnx, quantized.onnx.tranges, inputs.npz, program.epu, report.json, validate.json, report.html.
    """
    start = time.perf_counter()
    inputs = detr_inputs(INPUT_SEED)
    save_model(detr_encoder(layers=layers), folder / "model.onnx")
    save_arrays(folder / "inputs.npz", inputs)
    quantise_into(folder)
    job = ChimeraJob(
        folder / "quantized.onnx", hw_config, folder / "quantized.onnx.tranges", run_directory=folder / "run"
    )
    job.compile()
    write_bytes(folder / "program.epu", job.program.to_bytes())
    write_bytes(folder / "report.json", to_json(job.report()).encode())
    result = job.validate_ort_iss(inputs, progress=progress)
    write_bytes(folder / "validate.json", to_json(result.to_dict()).encode())
    write_bytes(folder / "report.html", report_html(job.record()).encode())
    show(str(job))
    show(result.summary_table())
    show(f"Files in {os.fspath(folder)}; {time.perf_counter() - start:.1f} s in all.")
    return result.passed


def quantise_into(folder: Path) -> None:
    """Quantise model.onnx on synthetic feature maps, under the names of the demo."""
    with tempfile.TemporaryDirectory() as temporary:
        samples = (detr_inputs(seed) for seed in CALIBRATION_SEEDS)
        result = quadric_quantize(folder / "model.onnx", output_folder=temporary, calibration_data=samples)
        _copy(result.tranges_path, folder / "quantized.onnx.tranges")
        _copy(result.qmodel_path, folder / "quantized.onnx")


def _copy(source: str, target: Path) -> None:
    with whole_file(target) as temporary:
        shutil.copyfile(source, temporary)
