"""The epu command: what it writes, what it says, its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper

from epu.cli.group import COMMANDS, epu


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(epu, [str(each) for each in arguments])


def matmul_model(folder: Path, dims: tuple[int | str, ...] = (4, 8)) -> Path:
    """x [4, 8] → MatMul → Relu → y."""
    random = np.random.default_rng(0)
    weight = onnx.numpy_helper.from_array(random.standard_normal((8, 4)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "matmul"), helper.make_node("Relu", ["h"], ["y"], "relu")]
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, list(dims)),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [dims[0], 4]),
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weight])
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def assert_refused(result: Result, *words: str) -> None:
    """Exit code 2, one paragraph, no traceback, all the words."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    errors = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    for word in words:
        assert word in errors[0]


def test_help_lists_every_command() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert all(name in result.output for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name: str) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def test_unknown_command_is_a_usage_error() -> None:
    assert invoke("frobnicate").exit_code == 2


def test_quantize_writes_the_model_and_its_ranges_and_nothing_else_half(tmp_path: Path) -> None:
    result = invoke("quantize", matmul_model(tmp_path), "-o", tmp_path / "out", "--synthetic", 2)
    assert result.exit_code == 0, result.output
    quantized = tmp_path / "out" / "m_opt_sym_int8_q.onnx"
    assert f"Quantized model: {quantized}" in result.output
    assert {node.op_type for node in onnx.load(quantized).graph.node} >= {"QLinearMatMul"}
    assert set(json.loads((tmp_path / "out" / "m_opt_sym_int8_q.onnx.tranges").read_text())) >= {"x", "y"}
    assert not list((tmp_path / "out").glob(".*"))


def test_quantize_takes_samples_from_an_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "calib.npz", x=np.random.default_rng(1).standard_normal((3, 4, 8)).astype(np.float32))
    result = invoke("quantize", matmul_model(tmp_path), "-o", tmp_path, "--calib", tmp_path / "calib.npz")
    assert result.exit_code == 0, result.output


def test_quantize_needs_exactly_one_source_of_samples(tmp_path: Path) -> None:
    model = matmul_model(tmp_path)
    assert_refused(invoke("quantize", model, "-o", tmp_path), "--calib FILE.npz", "neither")
    both = invoke("quantize", model, "-o", tmp_path, "--calib", "c.npz", "--synthetic", 1)
    assert_refused(both, "--synthetic N", "both")


def test_a_dynamic_dimension_says_how_to_fix_it(tmp_path: Path) -> None:
    model = matmul_model(tmp_path, ("batch", 8))
    assert_refused(invoke("quantize", model, "-o", tmp_path, "--synthetic", 1), "'x'", "dynamic", "--shape x=")
    fixed = invoke("quantize", model, "-o", tmp_path, "--synthetic", 1, "--shape", "x=4,8")
    assert fixed.exit_code == 0, fixed.output


@pytest.mark.parametrize("text", ["x", "x=", "=1,2", "x=1,two", "x=1,-2"])
def test_a_malformed_shape_shows_the_form(tmp_path: Path, text: str) -> None:
    result = invoke("quantize", matmul_model(tmp_path), "-o", tmp_path, "--synthetic", 1, "--shape", text)
    assert_refused(result, f"'{text}'", "--shape x=1,3,224,224")


@pytest.mark.parametrize("command", ["compile", "validate"])
@pytest.mark.parametrize(("content", "words"), [(b"hello", "not an ONNX file"), (None, "does not exist")])
def test_what_is_no_model_is_refused(tmp_path: Path, command: str, content: bytes | None, words: str) -> None:
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    output = ["-o", tmp_path / "out"] if command == "compile" else []
    assert_refused(invoke(command, path, *output), "m.onnx", words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [("--product", "QC-X", "QC-N, QC-P, QC-U"), ("--ocm-size", "8 bananas", "8MB"), ("--num-cores", "2", "must be 1")],
)
def test_bad_hardware_is_refused_before_anything_is_read(option: str, value: str, allowed: str) -> None:
    assert_refused(invoke("compile", "absent.onnx", "-o", "out", option, value), allowed)


def test_cut_writes_the_part(tmp_path: Path) -> None:
    model = matmul_model(tmp_path)
    result = invoke("cut", model, "--before", "h", "--after", "y", "-o", tmp_path / "part.onnx")
    assert result.exit_code == 0, result.output
    assert [node.name for node in onnx.load(tmp_path / "part.onnx").graph.node] == ["relu"]
    assert_refused(invoke("cut", model, "--after", "nope", "-o", tmp_path / "p.onnx"), "'nope'")
    assert_refused(invoke("cut", model, "-o", tmp_path / "p.onnx"), "--before", "--after")
    head = invoke("cut", model, "--after", "h", "-o", tmp_path / "head.onnx")
    assert head.exit_code == 0, head.output


def test_ops_lists_rows_with_limits_and_counts_a_model(tmp_path: Path) -> None:
    listing = invoke("ops")
    assert listing.exit_code == 0
    assert "QLinearMatMul" in listing.output
    counted = invoke("ops", matmul_model(tmp_path))
    assert counted.exit_code == 0
    assert "Relu" in counted.output


def test_a_defect_is_told_without_traceback_and_with_the_way_to_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import epu.onnx_util

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(epu.onnx_util, "load_model", broken)
    result = invoke("ops", "m.onnx")
    assert result.exit_code == 3
    assert "ZeroDivisionError: inside" in result.output
    assert "EPU_DEBUG=1" in result.output
    monkeypatch.setenv("EPU_DEBUG", "1")
    assert isinstance(invoke("ops", "m.onnx").exception, ZeroDivisionError)


def test_doctor_shows_versions() -> None:
    result = invoke("doctor")
    assert result.exit_code in (0, 2)
    assert "onnxruntime" in result.output
    assert "TVM door" in result.output


def test_errors_go_to_standard_error_in_one_paragraph(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "epu.cli", "ops", str(tmp_path / "no.onnx")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.strip().splitlines()) == 1


TERMINATED = """
import os, signal, sys
from epu.cli import exit_on_terminate
from epu.files import whole_file
exit_on_terminate()
with whole_file(sys.argv[1]) as path:
    path.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGTERM)
"""


def test_termination_leaves_no_half_written_file(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", TERMINATED, str(tmp_path / "report.json")], check=False)
    assert (ended.returncode, list(tmp_path.iterdir())) == (143, [])
