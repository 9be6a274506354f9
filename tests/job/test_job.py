"""ChimeraJob on a module compiled by hand: tables, files, refusals; compile itself is tested with the compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tiny_module import FRAC, SHAPE, TinyModule, tiny_model

from epu.errors import ConfigError, UserError
from epu.hw_config import HWConfig
from epu.job import ChimeraJob, stage_line
from epu.stages import Chain


@pytest.fixture
def job(tmp_path: Path) -> ChimeraJob:
    onnx.save(tiny_model(), tmp_path / "tiny.onnx")
    made = ChimeraJob(tmp_path / "tiny.onnx", HWConfig("QC-N"), run_directory=tmp_path / "run")
    made._chain = Chain.of(tiny_model(), TinyModule())
    made.seconds = {"build_tir": 0.25}
    return made


def test_stage_lines_are_those_of_the_log() -> None:
    assert stage_line("onnx_ingest") == "START==================================onnx_ingest"
    assert stage_line("build_tir") == "START====================================build_tir"


def test_tables_show_module_inputs_and_outputs(job: ChimeraJob) -> None:
    text = str(job)
    assert "tiny_QC_N_0d5_4MB_4kB_8GBps_8GBps_8_OFF_x1_x1" in text
    assert "tensor[FixedPoint32<8>]" in text
    assert "Max LRM" in text
    assert "Post-ISS" not in text


def test_run_writes_raw_files_and_returns_what_ort_would(job: ChimeraJob, tmp_path: Path) -> None:
    x = np.linspace(-2, 2, 8, dtype=np.float32).reshape(SHAPE)
    outputs = job.run({"x": x})
    assert outputs["y"].dtype == np.float32
    np.testing.assert_array_equal(outputs["y"], np.maximum(np.rint(x * 2) / 2, 0))
    raw_in = np.fromfile(tmp_path / "run" / "input.bin", np.int32)
    raw_out = np.fromfile(tmp_path / "run" / "output.bin", np.int32)
    np.testing.assert_array_equal(raw_in, np.rint(x.reshape(-1) * 2**FRAC))
    np.testing.assert_array_equal(raw_out / 2**FRAC, outputs["y"].reshape(-1))


def test_validation_fills_the_mse_and_the_report(job: ChimeraJob) -> None:
    result = job.validate_ort_iss()
    assert result.passed, result.failures
    text = str(job)
    assert "0.000e+00" in text
    assert "Post-ISS Report 0.5 GHz" in text
    assert "TotalCycles" in text
    assert "data_external" in text


def test_compile_report_has_the_form_of_the_command_line(job: ChimeraJob) -> None:
    report = job.report()
    assert list(report) == [
        "module",
        "hw",
        "seconds",
        "gmacs",
        "peak",
        "host_nodes",
        "placement",
        "kernels",
        "cycles",
        "mac_utilization",
    ]
    assert set(report["peak"]) == {"ocm_bytes", "lrm_bytes", "ext_temp_bytes"}
    cycles = report["cycles"]
    assert set(cycles) == {"total", "compute", "mac", "data_array", "data_ocm", "data_external", "overlap"}
    classes = sum(value for name, value in cycles.items() if name not in ("total", "overlap"))
    assert classes - cycles["overlap"] == cycles["total"] > 0
    assert [kernel["name"] for kernel in report["kernels"]] == ["quantize", "relu"]
    assert report["kernels"][1]["nodes"] == ["dequantize", "relu"]
    assert 0 < report["mac_utilization"] < 1


def test_save_writes_program_and_listing(job: ChimeraJob, tmp_path: Path) -> None:
    program, listing = job.save(tmp_path / "out")
    assert program.name == f"{job.module_name}.epu"
    assert program.read_bytes() == job.program.to_bytes()
    assert listing.read_text() == job.program.listing()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target_lang": "C"}, "target_lang must be 'ASM', found 'C'"),
        ({"rounding": "up"}, "rounding must be 'exact' or 'ort', found 'up'"),
        ({"custom_ops": "ops.hpp"}, "custom_ops 'ops.hpp' must be a Python file, found '.hpp'"),
    ],
)
def test_arguments_outside_their_limits(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ChimeraJob("m.onnx", **arguments)  # type: ignore[arg-type]


def test_nothing_works_before_compile() -> None:
    job = ChimeraJob("m.onnx")
    assert "not compiled yet" in str(job)
    with pytest.raises(UserError, match=r"Call compile\(\) first"):
        job.run({})


@pytest.mark.parametrize("inputs", [[np.zeros(3)], {"nothing": np.zeros(3)}, {"x": "text"}])
def test_inputs_of_another_kind_are_refused_before_anything_runs(job: ChimeraJob, inputs: Any) -> None:
    with pytest.raises(UserError, match="input"):
        job.validate_ort_iss(inputs)
