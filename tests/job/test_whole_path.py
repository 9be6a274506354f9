"""The whole path on a small DETR encoder: quantise, compile, run, validate, with the real compiler and simulator."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from epu.cli.group import epu
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.metrics import MODES
from epu.models import detr_encoder, detr_inputs
from epu.observed import node_outputs
from epu.onnx_util import save_model
from epu.quantize import quadric_quantize
from epu.raw_tensors import save_arrays
from epu.simulator.program import Program

pytest.importorskip("tvm", reason="the Relay door needs TVM")

SMALL = {"d_model": 32, "sequence": 24}


@dataclass(frozen=True)
class Small:
    """Files of a quantised one-layer encoder, and its job, compiled."""

    folder: Path
    model: Path
    tranges: Path
    job: ChimeraJob


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    folder = tmp_path_factory.mktemp("small")
    save_model(detr_encoder(layers=1, heads=2, ffn=64, **SMALL), folder / "small.onnx")
    samples = [detr_inputs(seed, **SMALL) for seed in (1, 2)]
    result = quadric_quantize(folder / "small.onnx", output_folder=folder, calibration_data=samples)
    save_arrays(folder / "in.npz", detr_inputs(9, **SMALL))
    job = ChimeraJob(result.qmodel_path, HWConfig("QC-N"), result.tranges_path, run_directory=folder / "run")
    job.compile()
    return Small(folder, Path(result.qmodel_path), Path(result.tranges_path), job)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(epu, [str(each) for each in arguments])


def test_every_node_output_is_compared_in_every_mode_and_passes(small: Small) -> None:
    result = small.job.validate_ort_iss(small.folder / "in.npz")
    assert result.passed, result.failures
    expected = [output.label for output in node_outputs(onnx.load(small.model))]
    for mode in MODES:
        assert [row["Name"] for row in result if row["mode"] == mode and row["Type"] == "Node"] == expected
    summary = result.summary
    assert summary["skipped"] == 0
    assert summary["iss_equals_golden"]
    assert summary["segment_min_psnr_db"] >= 120
    assert summary["end_to_end"]["encoder_memory"]["psnr_db"] > 30


def test_ort_rounding_repeats_ort_on_every_quantised_node(small: Small) -> None:
    job = ChimeraJob(small.model, HWConfig("QC-N"), small.tranges, rounding="ort", run_directory=small.folder / "ort")
    job.compile()
    result = job.validate_ort_iss(small.folder / "in.npz")
    assert result.passed, result.failures
    assert result.summary["isolated_int8_mismatches"] == 0


def test_spilled_tensors_are_forced_and_compared_too(small: Small) -> None:
    hw = HWConfig("QC-N", ocm_size="8kB")
    job = ChimeraJob(small.model, hw, small.tranges, run_directory=small.folder / "spill")
    job.compile()
    assert job.report()["peak"]["ext_temp_bytes"] > 0
    result = job.validate_ort_iss(small.folder / "in.npz")
    assert result.passed, result.failures


def test_each_stage_is_logged_once_by_its_owner(small: Small, caplog: pytest.LogCaptureFixture) -> None:
    job = ChimeraJob(small.model, HWConfig("QC-N"), small.tranges, run_directory=small.folder / "logged")
    with caplog.at_level("INFO", logger="epu"):
        job.compile()
    lines = [(record.name, record.getMessage()) for record in caplog.records if record.getMessage().startswith("START")]
    assert [(name, line.rpartition("=")[2]) for name, line in lines] == [
        ("epu.chimera_job", "onnx_ingest"),
        ("epu.codegen", "partition"),
        ("epu.codegen", "optimize_relay"),
        ("epu.codegen", "quantize_to_cpu_runnable_fx"),
        ("epu.codegen", "relay_to_tir"),
        ("epu.codegen", "adapt_and_order"),
        ("epu.codegen", "lrm_alloc_loop"),
        ("epu.codegen", "ext_split_relay"),
        ("epu.codegen", "build_tir"),
    ]


def test_stages_and_report(small: Small) -> None:
    report = small.job.report()
    assert {"onnx_ingest", "optimize_relay", "relay_to_tir", "build_tir"} <= set(report["seconds"])
    named = {name for kernel in report["kernels"] for name in kernel["nodes"]}
    assert "/encoder/layers.0/fc1/MatMul_quant" in named
    total = sum(kernel["cycles"]["total"] for kernel in report["kernels"])
    assert 0 < total <= report["cycles"]["total"]
    assert 0 < report["peak"]["lrm_bytes"] <= 4096
    assert report["gmacs"] > 0


def test_the_program_file_gives_the_same_outputs(small: Small) -> None:
    path, listing = small.job.save(small.folder / "out")
    assert Program.load(path) == small.job.program
    assert listing.read_text()
    done = invoke("run", path, "--inputs", small.folder / "in.npz", "-o", small.folder / "out.npz")
    assert done.exit_code == 0, done.output
    expected = small.job.run(detr_inputs(9, **SMALL))
    with np.load(small.folder / "out.npz") as outputs:
        np.testing.assert_array_equal(outputs["encoder_memory"], expected["encoder_memory"])


def test_a_missing_range_is_named_and_nothing_is_written(small: Small) -> None:
    ranges = json.loads(small.tranges.read_text())
    name = next(each for each in ranges if "Softmax" in each)
    del ranges[name]
    short = small.folder / "short.tranges"
    short.write_text(json.dumps(ranges))
    result = invoke("compile", small.model, "--tranges", short, "-o", small.folder / "none")
    assert result.exit_code == 2, result.output
    assert f"'{name}'" in result.output
    assert not (small.folder / "none").exists()


def test_an_ocm_that_is_too_small_says_what_needs_how_much(small: Small) -> None:
    more = ["--tranges", small.tranges, "--ocm-size", "1kB", "-o", small.folder / "none"]
    result = invoke("compile", small.model, *more)
    assert result.exit_code == 2, result.output
    error = next(line for line in result.output.splitlines() if line.startswith("Error: "))
    assert "ONNX node '" in error
    assert "1024" in error
    assert "ocm_size" in error
    assert not (small.folder / "none").exists()


@pytest.mark.slow
def test_the_demo_leaves_its_files(tmp_path: Path) -> None:
    result = invoke("demo", "-o", tmp_path, "--layers", "1")
    assert result.exit_code == 0, result.output
    files = {"model.onnx", "quantized.onnx", "quantized.onnx.tranges", "inputs.npz", "program.epu"}
    assert files | {"report.json", "report.html", "validate.json"} <= {path.name for path in tmp_path.iterdir()}
    assert "s in all" in result.output
