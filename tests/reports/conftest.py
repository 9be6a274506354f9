"""A small encoder, compiled and validated once, with all of it on the EPU and with its softmax on the host; their records."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.models import detr_encoder, detr_inputs
from epu.onnx_util import save_model
from epu.quantize import quadric_quantize
from epu.raw_tensors import save_arrays
from epu.run_record import load_record

sys.path.append(str(Path(__file__).resolve().parent))

pytest.importorskip("tvm", reason="the Relay door needs TVM")

SMALL = {"d_model": 32, "sequence": 24}
SOFTMAX = "/encoder/layers.0/self_attn/Softmax"


@dataclass(frozen=True)
class Case:
    """A validated job, its input file and the record in its run directory."""

    job: ChimeraJob
    model: Path
    inputs: Path
    folder: Path
    record: dict[str, Any]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Model, ranges, inputs."""
    folder = tmp_path_factory.mktemp("encoder")
    save_model(detr_encoder(layers=1, heads=2, ffn=64, **SMALL), folder / "small.onnx")
    samples = [detr_inputs(seed, **SMALL) for seed in (1, 2)]
    result = quadric_quantize(folder / "small.onnx", output_folder=folder, calibration_data=samples)
    save_arrays(folder / "in.npz", detr_inputs(9, **SMALL))
    return Path(result.qmodel_path), Path(result.tranges_path), folder / "in.npz"


def validated(files: tuple[Path, Path, Path], folder: Path, **options: Any) -> Case:
    model, tranges, inputs = files
    job = ChimeraJob(model, HWConfig("QC-N"), tranges, run_directory=folder, **options)
    job.compile()
    job.validate_ort_iss(inputs)
    return Case(job, model, inputs, folder, load_record(folder))


@pytest.fixture(scope="session")
def case(files: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Case:
    return validated(files, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="session")
def staged(files: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The same with a stage of the host between two programs."""
    return validated(files, tmp_path_factory.mktemp("staged"), exclude=[SOFTMAX])
