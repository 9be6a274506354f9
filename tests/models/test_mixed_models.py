"""Small models that mix what the EPU runs with what it refuses: how they are split, and that the parts are the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from epu.errors import UnsupportedNode, UserError
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.ranges import Ranges, save_ranges

pytest.importorskip("tvm", reason="the Relay door needs TVM")

SHAPE = [1, 4, 8]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
X = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)

Node = onnx.NodeProto


def node(op: str, inputs: list[str], output: str, **attributes: Any) -> Node:
    return helper.make_node(op, inputs, [output], output, **attributes)


def job_of(
    folder: Path,
    nodes: list[Node],
    outputs: dict[str, tuple[list[int], int]],
    ranges: Ranges,
    inputs: dict[str, tuple[list[int], int]] | None = None,
    **constants: Any,
) -> ChimeraJob:
    """A compiled job of the nodes over x [1, 4, 8] and further ``inputs``; ``constants`` are initializers."""
    ends = {"x": (SHAPE, FLOAT), **(inputs or {})}
    infos = [helper.make_tensor_value_info(name, kind, shape) for name, (shape, kind) in ends.items()]
    results = [helper.make_tensor_value_info(name, kind, shape) for name, (shape, kind) in outputs.items()]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "mixed", infos, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "mixed.onnx")
    save_ranges({"x": (-4.0, 4.0), **ranges}, folder / "mixed.tranges")
    job = ChimeraJob(folder / "mixed.onnx", HWConfig("QC-N"), folder / "mixed.tranges", run_directory=folder / "run")
    job.compile()
    return job


def sides(job: ChimeraJob) -> str:
    """One letter per stage, e.g. EHE."""
    return "".join("H" if stage in job.chain.host else "E" for stage in job.chain.stages)


def on_host(job: ChimeraJob) -> set[str]:
    return {row["node"] for row in job.host_nodes}


def check(job: ChimeraJob, **inputs: Any) -> None:
    result = job.validate_ort_iss({"x": X, **inputs})
    assert result.passed, result.failures
    assert result.summary["skipped"] == 0


def test_shapes_behind_a_host_node_are_known_in_every_part(tmp_path: Path) -> None:
    nodes = [
        node("Abs", ["x"], "size"),
        node("Add", ["size", "more"], "above"),
        node("Acosh", ["above"], "host"),
        node("Shape", ["host"], "shape"),
        node("Reshape", ["x", "shape"], "shaped"),
        node("Add", ["shaped", "host"], "y"),
    ]
    ranges = {"size": (0.0, 4.0), "above": (1.0, 6.0), "host": (0.0, 3.0), "shaped": (-4.0, 4.0), "y": (-4.0, 6.0)}
    job = job_of(tmp_path, nodes, {"y": (SHAPE, FLOAT), "shape": ([3], INT64)}, ranges, more=np.float32(1.5))
    assert sides(job) == "EHE"
    assert on_host(job) == {"host", "shape"}  # nothing on the EPU makes an output that depends on no input
    check(job)


def test_what_follows_a_dynamic_shape_stays_on_the_host(tmp_path: Path) -> None:
    nodes = [
        node("Tanh", ["x"], "t"),
        node("NonZero", ["t"], "found"),
        node("Cast", ["found"], "real", to=FLOAT),
        node("ReduceSum", ["real", "axes"], "sums", keepdims=0),
        node("Mul", ["t", "two"], "y"),
    ]
    ranges = {"t": (-1.0, 1.0), "real": (0.0, 8.0), "sums": (0.0, 500.0), "y": (-2.0, 2.0)}
    outputs = {"y": (SHAPE, FLOAT), "sums": ([3], FLOAT)}
    job = job_of(tmp_path, nodes, outputs, ranges, two=np.float32(2), axes=np.array([1]))
    assert sides(job) == "EH"
    assert on_host(job) == {"found", "real", "sums"}
    check(job)


def test_a_condition_of_word_ids_chooses_on_the_epu_or_on_the_host(tmp_path: Path) -> None:
    nodes = [
        node("Equal", ["ids", "padding"], "hidden"),
        node("Where", ["hidden", "lowest", "x"], "scores"),
        node("Softmax", ["scores"], "y"),
    ]
    ranges = {"scores": (-1e9, 4.0), "y": (0.0, 1.0)}
    ids = np.random.default_rng(1).integers(0, 4, SHAPE)
    job = job_of(tmp_path, nodes, {"y": (SHAPE, FLOAT)}, ranges, {"ids": (SHAPE, INT64)},
                 padding=np.int64(0), lowest=np.float32(-1e9))  # fmt: skip
    assert sides(job) == "HE"
    assert "hidden" in on_host(job)
    assert on_host(job)
    assert "y" not in on_host(job)
    check(job, ids=ids)


def test_control_flow_runs_on_the_host_with_what_it_takes_from_outside(tmp_path: Path) -> None:
    branches = [
        helper.make_graph([node(op, ["t"], op)], op, [], [helper.make_tensor_value_info(op, FLOAT, SHAPE)])
        for op in ("Neg", "Abs")
    ]
    nodes = [
        node("Tanh", ["x"], "t"),
        node("If", ["flag"], "chosen", then_branch=branches[0], else_branch=branches[1]),
        node("Exp", ["chosen"], "y"),
    ]
    ranges = {"t": (-1.0, 1.0), "chosen": (-1.0, 1.0), "y": (0.0, 3.0)}
    job = job_of(tmp_path, nodes, {"y": (SHAPE, FLOAT)}, ranges, {"flag": ([], TensorProto.BOOL)})
    assert (sides(job), on_host(job)) == ("EHE", {"chosen"})
    check(job, flag=np.array(True))


LOWEST = float(np.finfo(np.float32).min)
CAUSAL = np.where(np.arange(8) <= np.arange(4)[:, None] + 2, 0, -1e9).astype(np.float32)


@pytest.mark.parametrize("mask", [CAUSAL, np.full((4, 8), LOWEST, np.float32)], ids=["causal", "whole rows"])
def test_a_constant_mask_saturates_in_the_kernel(tmp_path: Path, mask: Any) -> None:
    nodes = [node("Tanh", ["x"], "t"), node("Add", ["mask", "t"], "sum"), node("Softmax", ["sum"], "y")]
    ranges = {"t": (-1.0, 1.0), "sum": (float(mask.min()), 1.0), "y": (0.0, 1.0)}
    job = job_of(tmp_path, nodes, {"y": (SHAPE, FLOAT)}, ranges, mask=mask)
    assert job.graph.tensor("sum").range_source == "mask"
    check(job)


def test_a_mask_that_is_an_input_saturates_behind_a_view_and_in_long_rows(tmp_path: Path) -> None:
    """Rows of 4096 are a softmax in five kernels."""
    nodes = [
        node("Expand", ["x", "wide"], "scores"),
        node("Reshape", ["scores", "long"], "rows"),
        node("Add", ["rows", "mask"], "sum"),
        node("Unsqueeze", ["sum", "axis"], "view"),
        node("Softmax", ["view"], "y"),
    ]
    wide, long = np.array([512, 4, 8]), np.array([4, 4096])
    ranges = dict.fromkeys(("scores", "rows"), (-4.0, 4.0))
    ranges |= {"mask": (LOWEST, 0.0), "sum": (LOWEST, 4.0), "view": (LOWEST, 4.0), "y": (0.0, 1.0)}
    mask = np.where(np.arange(4096) < 2500, 0, LOWEST).astype(np.float32).reshape(1, 4096)
    job = job_of(tmp_path, nodes, {"y": ([1, 4, 4096], FLOAT)}, ranges, {"mask": ([1, 4096], FLOAT)},
                 wide=wide, long=long, axis=np.array([0]))  # fmt: skip
    check(job, mask=mask)


def test_parts_are_as_few_as_the_graph_allows(tmp_path: Path) -> None:
    """Two host nodes at different depths fit one stage where the EPU part between them can wait."""
    nodes = [
        node("Cosh", ["x"], "early"),
        node("Abs", ["x"], "size"),
        node("Add", ["size", "early"], "sum"),
        node("Acosh", ["early"], "late"),
        node("Add", ["sum", "late"], "y"),
    ]
    ranges = {"early": (1.0, 30.0), "size": (0.0, 4.0), "sum": (1.0, 34.0), "late": (0.0, 5.0), "y": (0.0, 39.0)}
    job = job_of(tmp_path, nodes, {"y": (SHAPE, FLOAT)}, ranges)
    assert (sides(job), on_host(job)) == ("HE", {"early", "late"})
    check(job)


def test_what_only_the_ranges_refuse_goes_to_the_host(tmp_path: Path) -> None:
    """Scores of 4e12 have less than -4 fraction bits, with which no exponential is computed."""
    nodes = [node("Mul", ["x", "huge"], "scores"), node("Softmax", ["scores"], "shares"), node("Sqrt", ["shares"], "y")]
    ranges = {"scores": (-4e12, 4e12), "shares": (0.0, 1.0), "y": (0.0, 1.0)}
    job = job_of(tmp_path, nodes, {"y": (SHAPE, FLOAT)}, ranges, huge=np.float32(1e12))
    assert (sides(job), on_host(job)) == ("EHE", {"shares"})
    assert "-4 to 58 fraction bits" in job.host_nodes[0]["reason"]
    check(job)


def test_what_only_the_kernel_refuses_goes_to_the_host(tmp_path: Path) -> None:
    """A zero point per channel."""
    codes = node("QuantizeLinear", ["x", "scales", "zeros"], "codes", axis=1)
    nodes = [
        codes,
        node("DequantizeLinear", ["codes", "scales", "zeros"], "reals", axis=1),
        node("Tanh", ["reals"], "y"),
    ]
    scales, zeros = np.full(4, 0.03, np.float32), np.array([0, 1, 2, 3], np.int8)
    job = job_of(tmp_path, nodes, {"y": (SHAPE, FLOAT)}, {"reals": (-4.0, 4.0), "y": (-1.0, 1.0)},
                 scales=scales, zeros=zeros)  # fmt: skip
    assert on_host(job)
    assert "y" not in on_host(job)
    assert all("one zero point" in row["reason"] for row in job.host_nodes)
    check(job)


def test_a_model_without_refusals_is_one_program_of_the_whole_model(tmp_path: Path) -> None:
    nodes = [node("Shape", ["x"], "shape"), node("Tanh", ["x"], "t"), node("Reshape", ["t", "shape"], "y")]
    job = job_of(tmp_path, nodes, {"y": (SHAPE, FLOAT)}, {"t": (-1.0, 1.0), "y": (-1.0, 1.0)})
    assert (sides(job), job.host_nodes) == ("E", [])
    assert job.chain.epu[0].model is job.chain.model
    assert {row.node: row.where for row in job.placement} == {"shape": "folded", "t": "EPU", "y": "EPU"}
    assert [path.name for path in job.save(tmp_path)] == [f"{job.module_name}.epu", f"{job.module_name}.lst"]


def test_multiply_accumulates_of_integers_are_an_error_that_names_the_way_out(tmp_path: Path) -> None:
    nodes = [
        node("Cast", ["x"], "whole", to=TensorProto.INT32),
        node("MatMul", ["whole", "weights"], "product"),
        node("Cast", ["product"], "real", to=FLOAT),
        node("Tanh", ["real"], "y"),
    ]
    ranges = {"real": (-50.0, 50.0), "y": (-1.0, 1.0)}
    with pytest.raises(UnsupportedNode, match=r"'product'.*only if it is named: exclude=\['product'\]"):
        job_of(tmp_path, nodes, {"y": (SHAPE, FLOAT)}, ranges, weights=np.eye(8, dtype=np.int32))


def test_a_float_of_the_host_needs_a_range(tmp_path: Path) -> None:
    nodes = [node("Acosh", ["x"], "host"), node("Tanh", ["host"], "y")]
    with pytest.raises(UserError, match=r"tensor 'host' \(input of the program, read by \['y'\]\): .* needs a range"):
        job_of(tmp_path, nodes, {"y": (SHAPE, FLOAT)}, {"y": (0.0, 1.0)})
