"""The first node that diverges, and a folder that shows it: with errors planted in a kernel and in its program."""

from __future__ import annotations

import runpy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from epu import compiler
from epu.bisect import bisect
from epu.cli.group import epu
from epu.divergence import GOLDEN
from epu.errors import UserError
from epu.graph import Graph
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.models import detr_encoder, detr_inputs
from epu.onnx_util import save_model
from epu.quantize import quadric_quantize
from epu.ranges import save_ranges
from epu.raw_tensors import save_arrays
from epu.simulator.program import Program

pytest.importorskip("tvm", reason="the Relay door needs TVM")

SMALL = {"d_model": 32, "sequence": 24}
PLANTED = "/encoder/layers.0/fc1/MatMul_quant"


@dataclass(frozen=True)
class Files:
    model: Path
    tranges: Path
    inputs: Path

    def job(self, folder: Path) -> ChimeraJob:
        job = ChimeraJob(self.model, HWConfig("QC-N"), self.tranges, run_directory=folder / "run")
        job.compile()
        return job


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("bisect")
    save_model(detr_encoder(layers=1, heads=2, ffn=64, **SMALL), folder / "small.onnx")
    samples = [detr_inputs(seed, **SMALL) for seed in (1, 2)]
    result = quadric_quantize(folder / "small.onnx", output_folder=folder, calibration_data=samples)
    save_arrays(folder / "in.npz", detr_inputs(9, **SMALL))
    return Files(Path(result.qmodel_path), Path(result.tranges_path), folder / "in.npz")


def planted_in_kernel(graph: Graph) -> Graph:
    """One weight of the planted node one step off, for golden and ISS alike: what a wrong kernel computes."""
    for node in graph.nodes:
        weight = graph.tensors[node.inputs[1]] if node.name == PLANTED else None
        if weight is not None and weight.data is not None:
            data = weight.data.copy()
            data.flat[7] += 1 if data.flat[7] < 100 else -1
            graph.tensors[weight.name] = replace(weight, data=data)
    return graph


@pytest.fixture
def wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "PASSES", (planted_in_kernel, *compiler.PASSES))


@pytest.fixture
def wrong_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte of the planted node's weights wrong in the program alone, so that golden is right."""
    compile_graph = compiler.compile_graph

    def planted(graph: Graph, *args: Any, **kwargs: Any) -> Any:
        compiled = compile_graph(graph, *args, **kwargs)
        kernel = next((each for each in compiled.kernels if each.node.name == PLANTED), None)
        if kernel is None:
            return compiled
        weights = max(kernel.constants.values(), key=lambda each: each.size)
        return replace(compiled, program=one_bit_off(compiled.program, weights.tobytes()))

    monkeypatch.setattr(compiler, "compile_graph", planted)


def one_bit_off(program: Program, weights: bytes) -> Program:
    """The program with the lowest bit of the first of these weights turned."""
    (found,) = [each for each in program.constants if weights in each.data]
    place = found.data.index(weights)
    data = found.data[:place] + bytes([weights[0] ^ 1]) + found.data[place + 1 :]
    return replace(program, constants=tuple(replace(c, data=data) if c is found else c for c in program.constants))


def reproduces(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run the reproducer; what it says of the planted node."""
    found = runpy.run_path(str(folder / "reproduce.py"))
    capsys.readouterr()
    (row,) = found["rows"]
    return {"row": row, "result": found["result"]}


def test_error_planted_in_a_kernel_is_found_and_reproduced(
    files: Files,
    tmp_path: Path,
    wrong_kernel: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    found = bisect(files.job(tmp_path), files.inputs, tmp_path / "out")
    assert found is not None
    assert (found.divergence.node, found.divergence.is_wrong) == (PLANTED, True)
    assert "unexplained" in found.divergence.why
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "cut.onnx", "cut.onnx.tranges", "inputs.npz", "reproduce.py"
    ]  # fmt: skip
    cut = onnx.load(tmp_path / "out" / "cut.onnx")
    assert [node.name for node in cut.graph.node] == [PLANTED]
    again = reproduces(tmp_path / "out", capsys)
    assert again["row"]["Bitwise Mismatches"] == found.divergence.row["Bitwise Mismatches"] > 0
    assert again["row"]["Max Abs Err Loc"] == found.divergence.row["Max Abs Err Loc"]


def test_without_the_error_the_reproducer_shows_none(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "PASSES", (planted_in_kernel, *compiler.PASSES))
        assert bisect(files.job(tmp_path), files.inputs, tmp_path / "out") is not None
    again = reproduces(tmp_path / "out", capsys)
    assert again["result"].passed
    assert "unexplained" not in again["row"]["Comment"]


def test_error_planted_in_the_program_is_where_the_simulator_leaves_golden(
    files: Files,
    tmp_path: Path,
    wrong_program: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    found = bisect(files.job(tmp_path), files.inputs, tmp_path / "out")
    assert found is not None
    assert (found.divergence.node, found.divergence.why, found.nodes) == (PLANTED, GOLDEN, 1)
    assert not reproduces(tmp_path / "out", capsys)["result"].summary["iss_equals_golden"]


def test_command_names_the_node_and_the_folder(
    files: Files, tmp_path: Path, wrong_kernel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    options = ["--tranges", str(files.tranges), "--inputs", str(files.inputs), "--product", "QC-N", "-o", str(out)]
    result = CliRunner().invoke(epu, ["bisect", str(files.model), *options])
    assert result.exit_code == 1, result.output
    assert f"First divergence: node {PLANTED}:0 (QLinearMatMul)" in result.output
    assert f"Wrote {out} (1 nodes)" in result.output


def test_folder_that_is_there_is_refused_before_anything_runs(files: Files, tmp_path: Path) -> None:
    job = ChimeraJob(files.model, HWConfig("QC-N"), files.tranges, run_directory=tmp_path / "run")
    with pytest.raises(UserError, match="must not exist yet"):
        bisect(job, files.inputs, tmp_path)


def table_model() -> onnx.ModelProto:
    """x → Q → DQ → Relu → Q → DQ → y, whose middle is one table on codes."""
    scale = onnx.numpy_helper.from_array(np.float32(1 / 64), "s")
    zero = onnx.numpy_helper.from_array(np.int8(0), "z")
    steps = [("QuantizeLinear", "x", "a"), ("DequantizeLinear", "a", "b"), ("Relu", "b", "c"),
             ("QuantizeLinear", "c", "d"), ("DequantizeLinear", "d", "y")]  # fmt: skip
    nodes = [
        onnx.helper.make_node(op, [source] if op == "Relu" else [source, "s", "z"], [made], f"make_{made}")
        for op, source, made in steps
    ]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 32)) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "table", ends[:1], ends[1:], [scale, zero])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def test_a_tensor_inside_a_table_is_shown_by_the_same_table(tmp_path: Path) -> None:
    """The range of the Relu is eight times too small; as an output of the part it would be another kernel."""
    save_model(table_model(), tmp_path / "m.onnx")
    save_ranges({"x": (-1.9, 1.9), "c": (0.0, 0.2)}, tmp_path / "r.tranges")
    job = ChimeraJob(tmp_path / "m.onnx", HWConfig("QC-N"), tmp_path / "r.tranges", run_directory=tmp_path / "run")
    job.compile()
    found = bisect(job, {"x": np.linspace(-1.9, 1.9, 32, dtype=np.float32).reshape(1, 32)}, tmp_path / "out")
    assert found is not None
    assert (found.divergence.tensor, found.divergence.is_wrong) == ("c", False)
    assert found.folder is not None
    assert found.nodes == 3
