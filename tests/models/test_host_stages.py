"""Models of which a part runs on the host: a small transformer, and one with nodes put there by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from small_transformer import Arrays, quantised, sentences

from epu.errors import UnsupportedNode, UserError
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.metrics import MODES
from epu.ort_reference import OrtReference
from epu.saved_stages import SavedStages
from epu.simulator.program import Program

pytest.importorskip("tvm", reason="the Relay door needs TVM")

HOST = {"/embedded", "/mask.wide", "/mask.real", "/column", "/kept", "/echo"}
CONSTANT = {"words_DequantizeLinear"}  # of the QDQ form, read by the embedding
NEW = sentences(2, seed=7)


def compiled(folder: Path, layout: str, exclude: tuple[str, ...] = ()) -> ChimeraJob:
    files = quantised(folder, layout)
    job = ChimeraJob(
        files.qmodel_path, HWConfig("QC-N"), files.tranges_path, run_directory=folder / "run", exclude=exclude
    )
    job.compile()
    return job


def reference(job: ChimeraJob, inputs: Arrays) -> Arrays:
    return OrtReference(onnx.load(job.onnx_file)).run(inputs)


@pytest.fixture(scope="module", params=["qoperator", "qdq"])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ChimeraJob:
    return compiled(tmp_path_factory.mktemp(request.param), request.param)


def test_integers_and_the_embedding_run_on_the_host_and_the_rest_in_one_program(job: ChimeraJob) -> None:
    assert {row["node"] for row in job.host_nodes} - CONSTANT == HOST
    assert all(row["reason"] and row["remedy"] for row in job.host_nodes)
    assert [type(stage).__name__ for stage in job.chain.stages] == ["HostStage", "EpuStage"]
    assert len(job.programs) == 1
    assert job.program is job.programs[0]
    assert {row.node for row in job.placement} == {node.name for node in onnx.load(job.onnx_file).graph.node}
    assert {row.stage for row in job.placement if row.where == "EPU"} == {1}
    assert "/embedded" in str(job)


def test_every_node_passes_and_the_host_rows_say_so(job: ChimeraJob) -> None:
    result = job.validate_ort_iss(NEW[0])
    assert result.passed, result.failures
    assert result.summary["skipped"] == 0
    for mode in MODES:
        rows = {row["Name"]: row for row in result if row["mode"] == mode}
        assert {name.removesuffix(":0") for name, row in rows.items() if row["Type"] == "host"} - CONSTANT == HOST
        assert rows["/embedded:0"]["Comment"] == "ran on the host"
    assert result.to_dict()["placement"] == job.placement.to_list()


def test_the_free_run_is_what_ort_computes(job: ChimeraJob) -> None:
    for inputs in NEW:
        outputs, ort = job.run(inputs), reference(job, inputs)
        np.testing.assert_array_equal(outputs["echo"], inputs["ids"])
        for name in ("tokens", "sentence"):
            a, b = outputs[name].ravel().astype(np.float64), ort[name].ravel().astype(np.float64)
            assert a @ b / np.sqrt((a @ a) * (b @ b)) > 0.9999


def test_the_mask_leaves_the_scores_their_fraction_bits(job: ChimeraJob) -> None:
    masked, scores = job.graph.tensor("masked"), job.graph.tensor("scores")
    assert masked.range_source == "mask"
    assert masked.type.frac >= scores.type.frac - 2  # type: ignore[union-attr]
    rows = {row["Name"]: row for row in job.validate_ort_iss(NEW[0]) if row["mode"] == "isolated"}
    assert rows["/masked:0"]["PSNR (dB)"] > 120
    assert rows["/shares:0"]["PSNR (dB)"] > 120


def test_a_row_that_is_masked_whole_is_uniform_as_in_ort(job: ChimeraJob) -> None:
    inputs = {**NEW[0], "mask": np.zeros_like(NEW[0]["mask"])}
    result = job.validate_ort_iss(inputs)
    assert result.passed, result.failures


def test_files_of_several_stages(job: ChimeraJob, tmp_path: Path) -> None:
    paths = {path.name.removeprefix(job.module_name): path for path in job.save(tmp_path)}
    assert set(paths) == {".json", ".0.onnx", ".1.epu", ".1.lst"}
    manifest = json.loads(paths[".json"].read_text())
    assert [(row["where"], row["file"]) for row in manifest["stages"]] == [
        ("host", paths[".0.onnx"].name),
        ("EPU", paths[".1.epu"].name),
    ]
    assert Program.load(paths[".1.epu"]) == job.program
    onnx.checker.check_model(onnx.load(paths[".0.onnx"]))


RUN_WITHOUT_ONNX = """
import sys
sys.modules.update(onnx=None, tvm=None)
from epu.run import run_program
print(run_program(*sys.argv[1:]))
"""


def test_saved_stages_run_without_onnx_and_give_the_same(job: ChimeraJob, tmp_path: Path) -> None:
    manifest = next(path for path in job.save(tmp_path) if path.suffix == ".json")
    np.savez(tmp_path / "in.npz", **NEW[0])
    command = [sys.executable, "-c", RUN_WITHOUT_ONNX, manifest, tmp_path / "in.npz", tmp_path / "out.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"TotalCycles: {job.performance.cycles:,}" in done.stdout
    with np.load(tmp_path / "out.npz") as found:
        for name, array in job.run(NEW[0]).items():
            np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read as the stages of a job"),
        ('{"module": "m"}', "no list of stages of format epu-stages-1"),
        ('{"format": "epu-stages-1", "outputs": []}', "lacks a part of a list of stages: KeyError"),
        (
            '{"format": "epu-stages-1", "outputs": [], "stages": [{"file": "a.epu", "where": "EPU"}]}',
            r"a\.epu' does not exist",
        ),
    ],
)
def test_what_is_no_list_of_stages_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(UserError, match=words):
        SavedStages.load(tmp_path / "m.json")


def test_a_node_excluded_in_the_middle_makes_two_programs(tmp_path: Path) -> None:
    job = compiled(tmp_path, "qoperator", ("/shares",))
    assert [type(stage).__name__ for stage in job.chain.stages] == ["HostStage", "EpuStage", "HostStage", "EpuStage"]
    with pytest.raises(UserError, match=r"found 2\. Take them from job\.programs"):
        _ = job.program
    result = job.validate_ort_iss(NEW[0])
    assert result.passed, result.failures
    assert "excluded by the user" in next(row["reason"] for row in job.host_nodes if row["node"] == "/shares")
    report = job.report()
    assert sum(each["cycles"]["total"] for each in report["kernels"]) <= report["cycles"]["total"]
    assert {each["stage"] for each in report["kernels"]} == {1, 3}
    assert len(job.save(tmp_path)) == 7
    assert job.performance.cycles == report["cycles"]["total"]


def test_multiply_accumulates_run_on_the_host_by_name_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = compiled(tmp_path, "qoperator", ("/qk_quant",))
    assert "'/qk_quant' (QLinearMatMul) carries multiply-accumulates and runs on the host" in caplog.text
    assert job.validate_ort_iss(NEW[0]).passed


def test_a_refused_product_is_an_error_that_tells_how_to_leave_it_to_the_host(tmp_path: Path) -> None:
    files = quantised(tmp_path)
    model = onnx.load(files.qmodel_path)
    product = next(node for node in model.graph.node if node.name == "/out_quant")
    product.op_type, product.domain = "MatMulInteger", ""
    del product.input[4:], product.input[1]
    broken = tmp_path / "broken.onnx"
    onnx.save(model, broken)
    with pytest.raises(UserError):
        ChimeraJob(broken, trange_file=files.tranges_path).compile()


def test_an_unknown_name_in_exclude_is_told_its_neighbours(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"exclude: the model has no node '/share'. Did you mean '/shares'"):
        compiled(tmp_path, "qoperator", ("/share",))


def test_a_model_of_refused_nodes_alone_has_no_program(tmp_path: Path) -> None:
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Det", ["x"], ["y"], "only")], "g", values[:1], values[1:])
    onnx.save(onnx.helper.make_model(graph, ir_version=8), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedNode, match="'only'.*No node of the model would run on the EPU"):
        ChimeraJob(tmp_path / "m.onnx").compile()


def test_inputs_of_the_host_are_refused_before_anything_runs(job: ChimeraJob) -> None:
    with pytest.raises(UserError, match=r"'mask' is missing"):
        job.run({"ids": NEW[0]["ids"]})
    with pytest.raises(UserError, match=r"'ids' must have shape \[1, 8\], found \[8\]"):
        job.run({**NEW[0], "ids": NEW[0]["ids"][0]})
    with pytest.raises(UserError, match=r"'ids' must hold int64, found other values in float64"):
        job.run({**NEW[0], "ids": NEW[0]["ids"] + 0.5})


def test_without_inputs_a_sample_is_drawn(job: ChimeraJob) -> None:
    assert job.run()["sentence"].shape == (1, 16)


def test_the_command_line_works_over_several_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    from epu.cli.group import epu

    files = quantised(tmp_path)
    common = [files.qmodel_path, "--tranges", files.tranges_path, "--product", "QC-N", "--exclude", "/shares"]
    report = tmp_path / "report.json"
    done = CliRunner().invoke(epu, ["compile", *common, "-o", str(tmp_path / "out"), "--json", str(report)])
    assert done.exit_code == 0, done.output
    assert {row["where"] for row in json.loads(report.read_text())["placement"]} == {"EPU", "host"}
    np.savez(tmp_path / "in.npz", **NEW[0])
    checked = CliRunner().invoke(
        epu, ["validate", *common, "--inputs", str(tmp_path / "in.npz"), "--json", str(report)]
    )
    assert checked.exit_code == 0, checked.output
    assert "ran on the host" in report.read_text()
