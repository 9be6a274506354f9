"""A small encoder, compiled and validated once, with all of it on the EPU and with its softmax on the host; their records."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent))

from recorded_runs import SMALL, SOFTMAX, Case, validated

from epu.models import detr_encoder, detr_inputs
from epu.onnx_util import save_model
from epu.quantize import quadric_quantize
from epu.raw_tensors import save_arrays


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Model, ranges, inputs."""
    pytest.importorskip("tvm", reason="the Relay door needs TVM")
    folder = tmp_path_factory.mktemp("encoder")
    save_model(detr_encoder(layers=1, heads=2, ffn=64, **SMALL), folder / "small.onnx")
    samples = [detr_inputs(seed, **SMALL) for seed in (1, 2)]
    result = quadric_quantize(folder / "small.onnx", output_folder=folder, calibration_data=samples)
    save_arrays(folder / "in.npz", detr_inputs(9, **SMALL))
    return Path(result.qmodel_path), Path(result.tranges_path), folder / "in.npz"


@pytest.fixture(scope="session")
def case(files: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Case:
    return validated(files, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="session")
def staged(files: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The same with a stage of the host between two programs."""
    return validated(files, tmp_path_factory.mktemp("staged"), exclude=[SOFTMAX])
