"""Trace, annotated ONNX and node data: the forms that Perfetto, Netron and Model Explorer read."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner, Result
from recorded_runs import SOFTMAX, Case

from epu.annotate import annotated, model_explorer, node_metrics
from epu.cli.group import epu
from epu.errors import UserError
from epu.raw_tensors import load_arrays
from epu.trace import trace_of


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(epu, [str(each) for each in arguments])


@pytest.fixture(params=["case", "staged"])
def each(request: pytest.FixtureRequest) -> Case:
    found: Case = request.getfixturevalue(request.param)
    return found


def by_thread(trace: dict[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            found.setdefault((event["pid"], event["tid"]), []).append(event)
    return found


def test_spans_of_a_thread_follow_each_other_at_the_clock(each: Case) -> None:
    trace = json.loads(json.dumps(trace_of(each.record)))
    threads = by_thread(trace)
    named = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}
    assert set(threads) == named
    for events in threads.values():
        for a, b in pairwise(sorted(events, key=lambda event: event["args"]["start_cycle"])):
            assert a["args"]["start_cycle"] + a["args"]["cycles"] <= b["args"]["start_cycle"]
        assert all(math.isclose(event["ts"], event["args"]["start_cycle"] / 500) for event in events)  # QC-N: 0.5 GHz


def test_kernels_in_the_trace_take_the_cycles_of_the_run(each: Case) -> None:
    events = trace_of(each.record)["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    taken = sum(e["args"]["cycles"] for e in events if e["ph"] == "X" and names[e["pid"], e["tid"]] == "kernels")
    assert taken == each.record["totals"]["cycles"]["total"]


def test_the_counter_of_ocm_ends_empty(each: Case) -> None:
    counts = [event["args"]["bytes"] for event in trace_of(each.record)["traceEvents"] if event["ph"] == "C"]
    assert counts[-1] == 0
    assert 0 < max(counts) <= each.record["totals"]["peak_ocm_bytes"]
    assert min(counts) == 0


def test_an_annotated_model_is_valid_and_gives_the_same_answers(case: Case) -> None:
    model = onnx.load(case.model)
    made = annotated(model, case.record)
    onnx.checker.check_model(made)
    inputs = load_arrays(case.inputs)
    answers = [
        onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)
        for each in (model, made)
    ]
    for a, b in zip(*answers, strict=True):
        np.testing.assert_array_equal(a, b)
    for node in made.graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
    assert made == model


def test_nodes_carry_place_cycles_and_errors(staged: Case) -> None:
    made = annotated(onnx.load(staged.model), staged.record)
    about = {node.name: {entry.key: entry.value for entry in node.metadata_props} for node in made.graph.node}
    assert about[SOFTMAX]["epu.where"] == "host"
    assert "epu.cycles" not in about[SOFTMAX]
    stage = staged.record["stages"][0]
    kernel = stage["kernels"][0]
    assert about[kernel["nodes"][0]]["epu.cycles"] == str(kernel["cycles"]["total"])
    assert about[kernel["nodes"][0]]["epu.psnr_db.isolated"]
    assert "where: host" in next(node.doc_string for node in made.graph.node if node.name == SOFTMAX)


def test_a_doc_string_of_the_model_stays(case: Case) -> None:
    model = onnx.load(case.model)
    model.graph.node[0].doc_string = "from the author"
    assert annotated(model, case.record).graph.node[0].doc_string == "from the author"
    assert set(node_metrics(case.record)) == {name for node in model.graph.node for name in node.output}


def test_node_data_of_model_explorer(case: Case) -> None:
    cycles = model_explorer(case.record, "cycles")
    names = {node["name"] for node in case.record["nodes"]}
    assert set(cycles["results"]) <= names
    assert math.isclose(
        sum(each["value"] for each in cycles["results"].values()), case.record["totals"]["cycles"]["total"]
    )
    assert [stop["stop"] for stop in cycles["gradient"]] == [0, 0.5, 1]
    psnr = model_explorer(case.record, "psnr")
    assert psnr["results"]
    assert all(math.isfinite(each["value"]) for each in psnr["results"].values())
    assert psnr["gradient"][0] == {"stop": 0, "bgColor": cycles["gradient"][2]["bgColor"]}  # low is bad
    with pytest.raises(UserError, match="cycles, psnr, mismatches, lsb, found 'x'"):
        model_explorer(case.record, "x")


def test_the_command_writes_every_form(case: Case, tmp_path: Path) -> None:
    result = invoke(
        "report", case.folder, "--html", tmp_path / "r.html", "--json", tmp_path / "r.json", "--trace", tmp_path / "t.json",
        "--onnx", tmp_path / "a.onnx", "--model", case.model, "--model-explorer", tmp_path / "m.json", "--metric", "lsb",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "r.json").read_text()) == case.record
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert json.loads((tmp_path / "m.json").read_text())["results"]
    assert onnx.load(tmp_path / "a.onnx").graph.node[0].metadata_props
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert {path.name for path in tmp_path.iterdir()} == {"r.html", "r.json", "t.json", "a.onnx", "m.json"}


def test_html_without_a_name_goes_into_the_run_directory(case: Case) -> None:
    result = invoke("report", case.folder, "--html")
    assert result.exit_code == 0, result.output
    assert (case.folder / "report.html").is_file()


def test_the_command_alone_prints_the_run(case: Case) -> None:
    result = invoke("report", case.folder)
    assert result.exit_code == 0, result.output
    assert f"{case.record['totals']['cycles']['total']:,}" in result.output
    assert "Bound by" in result.output


def test_another_model_is_not_annotated(case: Case, tmp_path: Path) -> None:
    missing = invoke("report", case.folder, "--onnx", tmp_path / "a.onnx")
    assert missing.exit_code == 2
    assert "--model PATH" in missing.output
    model = onnx.load(case.model)
    model.doc_string = "changed"
    onnx.save(model, tmp_path / "other.onnx")
    other = invoke("report", case.folder, "--onnx", tmp_path / "a.onnx", "--model", tmp_path / "other.onnx")
    assert other.exit_code == 2
    assert "SHA-256" in other.output
    assert not (tmp_path / "a.onnx").exists()
