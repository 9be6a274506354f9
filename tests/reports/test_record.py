"""The run record: what its schema says, and numbers that must agree with the program and with each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from recorded_runs import SOFTMAX, Case

import epu.run_record
from epu import run_record
from epu.errors import UserError
from epu.graph import Fixed, Quantized, Tensor
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.record_model import node_depths, risk
from epu.record_stage import bound
from epu.reports import CYCLE_CLASSES, CYCLE_FIELDS
from epu.run_record import load_record
from epu.simulator.timing import CycleCount
from epu.tensor_facts import TensorFacts, facts_of

SCHEMA = json.loads(Path(epu.run_record.__file__).with_name("run_record.schema.json").read_text(encoding="utf-8"))


@pytest.fixture(params=["case", "staged"])
def each(request: pytest.FixtureRequest) -> Case:
    found: Case = request.getfixturevalue(request.param)
    return found


def epu_stages(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [stage for stage in record["stages"] if stage["where"] == "EPU"]


def test_the_schema_is_a_schema_and_describes_the_record(each: Case) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(each.record)


def test_the_schema_refuses_what_is_not_a_record(case: Case) -> None:
    for broken in ({"version": 2}, {"more": 1}, {"nodes": [{"name": "x"}]}, {"totals": {}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(SCHEMA).validate({**case.record, **broken})


def test_a_run_without_validation_has_a_record_too(case: Case, tmp_path: Path) -> None:
    job = ChimeraJob(case.model, HWConfig("QC-N"), case.job.trange_file, run_directory=tmp_path)
    job.compile()
    job.run(case.inputs)
    record = load_record(tmp_path)
    jsonschema.Draft202012Validator(SCHEMA).validate(record)
    assert (record["validation"], record["rows"]) == (None, [])
    assert record["totals"]["cycles"] == case.record["totals"]["cycles"]
    seen = {tensor["name"] for tensor in record["tensors"] if tensor["seen"]}
    assert {value.name for value in (*job.program.inputs, *job.program.outputs)} <= seen


def test_no_folder_is_in_the_record(each: Case) -> None:
    text = (each.folder / "run.json").read_text(encoding="utf-8")
    assert str(each.folder) not in text
    assert str(each.model.parent) not in text
    assert each.record["model"]["file"] == each.model.name


def test_cycles_are_those_of_the_run(each: Case) -> None:
    run = each.job.run_result
    assert run is not None
    kernels = [kernel for stage in epu_stages(each.record) for kernel in stage["kernels"]]
    assert each.record["totals"]["cycles"] == {name: getattr(run.cycles, name) for name in CYCLE_FIELDS}
    assert [kernel["cycles"]["total"] for kernel in kernels] == [cycles.total for cycles in run.kernels]
    totals = each.record["totals"]
    assert (totals["ext_read_bytes"], totals["ext_write_bytes"]) == (run.ext_read_bytes, run.ext_write_bytes)
    performance = each.job.performance
    assert totals["latency_s"] == performance.seconds
    assert totals["mac_utilization"] == performance.mac_utilization
    assert sum(totals["energy"].values()) == pytest.approx(performance.energy_joules, rel=1e-9)
    assert sum(kernel["energy"] for kernel in kernels) == pytest.approx(performance.energy_joules, rel=1e-9)


def test_stages_follow_each_other_and_kernels_fill_them(each: Case) -> None:
    now = 0
    for stage in epu_stages(each.record):
        assert stage["start"] == now
        for kernel in stage["kernels"]:
            assert kernel["start"] == now
            now += kernel["cycles"]["total"]
        assert now - stage["start"] == stage["cycles"]["total"]  # nothing runs outside kernels but Halt
    assert now == each.record["totals"]["cycles"]["total"]


def test_the_timeline_accounts_for_every_cycle_of_each_class(each: Case) -> None:
    for stage in epu_stages(each.record):
        timeline, cycles = stage["timeline"], stage["cycles"]
        busy = dict.fromkeys(timeline["tracks"], 0)
        for track, _, _, start, end, worked, _ in timeline["spans"]:
            assert stage["start"] <= start < end
            busy[timeline["tracks"][track]] += worked
        assert busy["array"] == cycles["compute"] + cycles["mac"] + cycles["data_array"]
        assert busy["port"] == cycles["data_ocm"]
        assert busy["in"] + busy["out"] == cycles["data_external"]


def test_work_is_that_of_the_model(each: Case) -> None:
    macs = sum(kernel["macs"] for stage in epu_stages(each.record) for kernel in stage["kernels"])
    assert macs == sum(span.macs for program in each.job.programs for span in program.debug.kernels) > 0
    moved = sum(kernel["ext_bytes"] for stage in epu_stages(each.record) for kernel in stage["kernels"])
    assert moved == each.record["totals"]["ext_read_bytes"] + each.record["totals"]["ext_write_bytes"]


def assert_apart(tenants: list[dict[str, Any]]) -> None:
    assert tenants
    for a, b in combinations(tenants, 2):
        at_once = a["first"] < b["last"] and b["first"] < a["last"]
        overlap = a["addr"] < b["addr"] + b["bytes"] and b["addr"] < a["addr"] + a["bytes"]
        assert not (at_once and overlap), (a, b)


@pytest.mark.slow
def test_tenants_of_a_small_ocm_with_slices_and_spills(files: tuple[Path, Path, Path]) -> None:
    job = ChimeraJob(files[0], HWConfig("QC-N", ocm_size="4kB"), files[1])
    job.compile()
    record = job.record()
    jsonschema.Draft202012Validator(SCHEMA).validate(record)
    (stage,) = record["stages"]
    assert_apart(stage["ocm"])
    assert {tenant["kind"] for tenant in stage["ocm"]} >= {"tensor", "slice", "constants"}
    tensors = [tenant["name"] for tenant in stage["ocm"] if tenant["kind"] == "tensor"]
    assert len(tensors) > len(set(tensors))  # some left and came back
    assert (
        max(tenant["addr"] + tenant["bytes"] for tenant in stage["ocm"]) == record["totals"]["peak_ocm_bytes"] <= 4096
    )
    assert all(tenant["first"] < tenant["last"] for tenant in stage["ocm"])


def test_no_two_tenants_of_the_ocm_share_a_byte(each: Case) -> None:
    for stage in epu_stages(each.record):
        assert_apart(stage["ocm"])
    highest = max(tenant["addr"] + tenant["bytes"] for stage in epu_stages(each.record) for tenant in stage["ocm"])
    assert highest == each.record["totals"]["peak_ocm_bytes"]


def test_every_operand_of_a_kernel_is_a_tenant_while_it_runs(case: Case) -> None:
    (stage,) = epu_stages(case.record)
    for index, span in enumerate(case.job.program.debug.kernels):
        here = [tenant for tenant in stage["ocm"] if tenant["first"] <= index < tenant["last"]]
        for buffer in (*span.inputs, *span.outputs):
            assert (
                any(tenant["addr"] == buffer.addr for tenant in here if buffer.space == "ocm") or buffer.space == "ext"
            )


def test_tenants_of_the_lrm_lie_below_the_peak_and_apart(case: Case) -> None:
    (stage,) = epu_stages(case.record)
    assert max(stage["lrm"]["peak"]) == case.record["totals"]["peak_lrm_bytes"]
    for peak, holdings in zip(stage["lrm"]["peak"], stage["lrm"]["holdings"], strict=True):
        assert all(address + size <= peak for _, address, size, _, _ in holdings)
        for (_, a, a_size, a_first, a_last), (_, b, b_size, b_first, b_last) in combinations(holdings, 2):
            assert not (a < b + b_size and b < a + a_size and a_first < b_last and b_first < a_last)


def test_nodes_know_their_kernel_stage_and_reason(case: Case, staged: Case) -> None:
    kernels = case.record["stages"][0]["kernels"]
    for node in case.record["nodes"]:
        assert node["kernel"] is None or node["name"] in kernels[node["kernel"]]["nodes"]
    (host,) = (node for node in staged.record["nodes"] if node["where"] == "host")
    assert host["name"] == SOFTMAX
    assert host["kernel"] is None
    assert "exclude" in host["remedy"]


def test_rows_have_the_depth_of_their_node(case: Case) -> None:
    depths = {name: node["depth"] for node in case.record["nodes"] for name in node["outputs"]}
    assert case.record["rows"]
    assert all(row["depth"] == depths[row["tensor"]] for row in case.record["rows"])


def test_depth_is_the_longest_path() -> None:
    nodes = [
        helper.make_node("Add", ["b", "x"], ["c"]),  # out of order on purpose
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Split", ["x"], ["", "d"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [x]))
    assert node_depths(model) == [3, 1, 2, 1]
    chain = [helper.make_node("Relu", [f"t{n}"], [f"t{n + 1}"]) for n in range(5000)]  # deeper than Python recurses
    assert node_depths(helper.make_model(helper.make_graph(chain[::-1], "g", [x], [x])))[0] == 5000


def test_facts_of_tensors() -> None:
    facts = facts_of(
        {"a": np.array([[-128, 3, 127, 127]], np.int8), "f": np.zeros(2, np.float32), "e": np.zeros(0, np.int8)}
    )
    assert list(facts) == ["a"]
    assert (facts["a"].low, facts["a"].high, facts["a"].at_limit, facts["a"].total) == (-128, 127, 3, 4)
    other = facts_of({"a": np.array([[-128, 3, 127, 126]], np.int8)})["a"]
    assert other.digest != facts["a"].digest


def fixed(low: float, high: float) -> Tensor:
    return Tensor("t", (2,), Fixed(4), range=(low, high))


@pytest.mark.parametrize(
    ("tensor", "at_limit", "seen", "use", "expected"),
    [
        (fixed(-1, 1), 1, (-1.0, 1.0), 1.0, "saturated"),
        (Tensor("t", (2,), Quantized("int8", (1.0,), (0,))), 1, (-128.0, 1.0), 1.0, "clipped"),
        (Tensor("t", (2,), Quantized("int8", (1.0,), (0,))), 0, (-127.0, 1.0), 0.99, "low"),
        (fixed(-1, 1), 0, (-1.03, 1.0), 0.5, "beyond range"),
        (fixed(-1, 1), 0, (-1.01, 1.0), 0.5, "low"),
        (fixed(-1, 1), 0, (-1.0, 1.0), 0.91, "close"),
        (fixed(-1, 1), 0, None, None, "unknown"),
    ],
)
def test_risk(tensor: Tensor, at_limit: int, seen: Any, use: float | None, expected: str) -> None:
    facts = TensorFacts("int32", 0, 0, at_limit, 2, "") if seen else None
    assert risk(tensor, facts, seen, use) == expected


def test_external_transfers_bound_a_kernel_by_the_time_waited_for() -> None:
    cycles = CycleCount(total=110, compute=60, data_ocm=50, data_external=500, overlap=500)
    assert bound(cycles, wait=0) == "compute"
    assert bound(cycles, wait=61) == "data_external"
    assert bound(CycleCount(), wait=0) == ""
    assert [bound(CycleCount(**{name: 1, "total": 1}), wait=name == "data_external") for name in CYCLE_CLASSES] == list(
        CYCLE_CLASSES
    )


def broken_records(folder: Path) -> Iterator[tuple[Path, str]]:
    for name, text, words in (
        ("none", None, "holds no run record"),
        ("text", "hello", "not a run record"),
        ("list", "[]", "no schema"),
        ("other", '{"schema": "x"}', "no schema"),
        ("next", '{"schema": "epu-run-record", "version": 2}', "version must be 1, found 2"),
        (
            "part",
            '{"schema": "epu-run-record", "version": 1, "model": {}}',
            "not a whole run record: it lacks software, ",
        ),
    ):
        (folder / name).mkdir()
        if text is not None:
            (folder / name / "run.json").write_text(text)
        yield folder / name, words


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    for folder, words in broken_records(tmp_path):
        with pytest.raises(UserError, match=words):
            load_record(folder)


def test_a_folder_of_runs_lists_them(tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
    with pytest.raises(UserError, match="Name one of the 2 run directories in it: after, before"):
        load_record(tmp_path)


def test_the_schema_and_the_reader_require_the_same_keys() -> None:
    schema = json.loads((Path(run_record.__file__).parent / "run_record.schema.json").read_text())
    assert set(schema["required"]) == {"schema", "version", *run_record.KEYS}


def test_a_record_needs_a_compiled_job(case: Case) -> None:
    with pytest.raises(UserError, match="not compiled"):
        ChimeraJob(case.model, HWConfig("QC-N")).record()


def test_the_model_is_that_of_the_file(case: Case) -> None:
    model = onnx.load(case.model)
    assert case.record["model"]["graph"] == model.graph.name
    assert [node["op"] for node in case.record["nodes"]] == [node.op_type for node in model.graph.node]
