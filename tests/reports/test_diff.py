"""Comparison of two runs: the same is the same, and each kind of change shows where it belongs."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from recorded_runs import Case, validated

from epu.cli.group import epu
from epu.diff import MOST_LINES, diff, diff_text
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.raw_tensors import load_arrays
from epu.run_record import load_record

SECTIONS = ["settings", "values", "rows", "cycles", "memory", "placement", "ranges"]


def test_a_run_equals_itself(case: Case) -> None:
    changes = diff(case.record, case.record)
    assert list(changes) == SECTIONS
    assert not any(changes.values())
    assert diff_text(changes, ("a", "b")).splitlines() == [f"{name}: the same" for name in SECTIONS]


def test_another_input_changes_values_only(case: Case, tmp_path: Path) -> None:
    job = ChimeraJob(case.model, HWConfig("QC-N"), case.job.trange_file, run_directory=tmp_path)
    job.compile()
    inputs = load_arrays(case.inputs)
    job.run(inputs)
    before = load_record(tmp_path)
    name = next(iter(inputs))
    changed = inputs[name].copy()
    changed.reshape(-1)[0] += np.float32(0.5)
    job.run({**inputs, name: changed})
    changes = diff(before, load_record(tmp_path))
    assert {name for name, lines in changes.items() if lines} <= {"values", "ranges"}  # the risk is of the values
    assert name in {line["what"] for line in changes["values"] if line["field"] == "digest"}


def test_another_machine_changes_cycles_and_memory_but_no_values(
    case: Case, files: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    model, tranges, inputs = files
    job = ChimeraJob(model, HWConfig("QC-U"), tranges, run_directory=tmp_path)
    job.compile()
    job.validate_ort_iss(inputs)
    changes = diff(case.record, load_record(tmp_path))
    assert changes["values"] == changes["rows"] == changes["placement"] == changes["ranges"] == []
    total = next(line for line in changes["cycles"] if line["what"] == "total" and line["field"] == "total")
    assert total["b"] < total["a"] == case.record["totals"]["cycles"]["total"]
    assert {line["field"] for line in changes["settings"]} >= {"hardware", "rows", "cols", "clock_ghz"}
    assert changes["memory"]


def test_a_node_on_the_host_shows_as_placement(case: Case, staged: Case) -> None:
    changes = diff(case.record, staged.record)
    moved = [line for line in changes["placement"] if line["field"] == "where"]
    assert [(line["a"], line["b"]) for line in moved] == [("EPU", "host")]


def planted(record: dict[str, Any], what: str) -> dict[str, Any]:
    changed = copy.deepcopy(record)
    if what == "values":
        tensor = next(each for each in changed["tensors"] if each["digest"])
        tensor["digest"] = "0" * 16
    elif what == "rows":
        changed["rows"][0]["Bitwise Mismatches"] += 1
    elif what == "cycles":
        changed["stages"][0]["kernels"][0]["cycles"]["mac"] += 1
    elif what == "memory":
        changed["stages"][0]["ocm"].pop()
    elif what == "placement":
        changed["nodes"][0]["where"] = "host"
    elif what == "ranges":
        tensor = next(each for each in changed["tensors"] if each["range"])
        tensor["range"][1] += 1
    else:
        changed["settings"]["rounding"] = "ort"
    return changed


@pytest.mark.parametrize("what", SECTIONS)
def test_one_change_is_one_line_in_its_section(case: Case, what: str) -> None:
    changes = diff(case.record, planted(case.record, what))
    assert {name: len(lines) for name, lines in changes.items() if lines} == {what: 1}


def test_text_shows_numbers_with_their_change(case: Case) -> None:
    changed = copy.deepcopy(case.record)
    changed["totals"]["cycles"]["total"] = 2 * case.record["totals"]["cycles"]["total"]
    text = diff_text(diff(case.record, changed), ("old", "new"))
    assert "+100.0 %" in text
    assert "old" in text
    assert "new" in text


def test_the_largest_change_of_cycles_comes_first(case: Case) -> None:
    changed = copy.deepcopy(case.record)
    kernels = changed["stages"][0]["kernels"]
    kernels[0]["cycles"]["mac"] += 1
    kernels[1]["cycles"]["mac"] += 1000
    lines = diff_text(diff(case.record, changed), ("a", "b")).splitlines()
    large, small = (next(n for n, line in enumerate(lines) if text in line) for text in ("+1000", "+1 "))
    assert large < small


def test_long_sections_are_cut_in_text_but_counted(case: Case) -> None:
    lines = [{"what": f"k{n}", "field": "total", "a": 1, "b": None} for n in range(MOST_LINES + 3)]
    text = diff_text({"cycles": lines}, ("a", "b"))
    assert f"cycles: {MOST_LINES + 3} changes" in text
    assert "and 3 more" in text


def test_the_command(case: Case, staged: Case, tmp_path: Path) -> None:
    runner = CliRunner()
    text = runner.invoke(epu, ["diff", str(case.folder), str(staged.folder)])
    assert text.exit_code == 0, text.output
    assert "placement: " in text.output
    printed = runner.invoke(epu, ["diff", str(case.folder), str(staged.folder), "--json"])
    assert list(json.loads(printed.output)) == SECTIONS
    written = runner.invoke(epu, ["diff", str(case.folder), str(case.folder), "--json", str(tmp_path / "d.json")])
    assert written.exit_code == 0
    assert not any(json.loads((tmp_path / "d.json").read_text()).values())
    refused = runner.invoke(epu, ["diff", str(case.folder), str(tmp_path)])
    assert refused.exit_code == 2
    assert "holds no run record" in refused.output


def test_a_run_without_values_is_one_line_not_one_for_each_tensor(case: Case) -> None:
    bare = copy.deepcopy(case.record) | {"rows": [], "validation": None}
    for tensor in bare["tensors"]:
        tensor["digest"] = None
    changes = diff(case.record, bare)
    assert changes["values"] == changes["rows"] == [{"what": "all", "field": "present", "a": True, "b": False}]
    assert "values: 1 change\n" in diff_text(changes, ("a", "b"))


def test_rounding_shows(case: Case, files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    changes = diff(case.record, validated(files, tmp_path, rounding="ort").record)
    assert ("exact", "ort") in {(line["a"], line["b"]) for line in changes["settings"]}
