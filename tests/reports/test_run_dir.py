"""``--run-dir``: where epu compile and epu validate leave the record that epu report reads."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result
from recorded_runs import Case

from epu.cli.group import epu
from epu.run_record import load_record


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(epu, [str(each) for each in arguments])


def test_compile_leaves_a_record_without_a_run(case: Case, files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    model, tranges, _ = files
    options = ["--tranges", tranges, "--product", "QC-N", "-o", tmp_path / "out", "--run-dir", tmp_path / "run"]
    result = invoke("compile", model, *options)
    assert result.exit_code == 0, result.output
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]
    record = load_record(tmp_path / "run")
    assert record["stages"] == case.record["stages"]
    assert record["totals"] == case.record["totals"]
    assert {tensor["seen"] is None for tensor in record["tensors"]} == {True}


def test_validate_leaves_the_whole_record(case: Case, files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    model, tranges, inputs = files
    options = ["--tranges", tranges, "--product", "QC-N", "--inputs", inputs, "--run-dir", tmp_path / "run"]
    result = invoke("validate", model, *options)
    assert result.exit_code == 0, result.output
    record = load_record(tmp_path / "run")
    for part in ("rows", "nodes", "tensors", "stages", "totals", "model", "machine", "software"):
        assert record[part] == case.record[part], part
    shown = invoke("report", tmp_path / "run", "--html")
    assert shown.exit_code == 0, shown.output
    assert str(tmp_path / "run" / "report.html") in shown.output
