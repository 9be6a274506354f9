"""compile, run, validate and disasm on a module assembled by hand in place of the compiler's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from tiny_module import FRAC, QUANTIZE, SHAPE, TinyModule, tiny_model, tiny_program, use_module

from epu.cli.group import epu

pytest.importorskip("tvm", reason="the Relay door needs TVM")

X = np.linspace(-2, 2, 8, dtype=np.float32).reshape(SHAPE)
MODULE = "tiny_QC_N_0d5_4MB_4kB_8GBps_8GBps_8_OFF_x1_x1"


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(epu, [str(each) for each in arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """tiny.onnx, its ranges and inputs; the compiler returns the module by hand."""
    onnx.save(tiny_model(), tmp_path / "tiny.onnx")
    (tmp_path / "tiny.tranges").write_text(json.dumps({"x": [-2.0, 2.0], "d": [-2.0, 2.0], "y": [0.0, 2.0]}))
    np.savez(tmp_path / "in.npz", x=X)
    monkeypatch.chdir(tmp_path)
    use_module(monkeypatch, TinyModule())
    return tmp_path


def compile_tiny(*more: object) -> Result:
    return invoke("compile", "tiny.onnx", "--tranges", "tiny.tranges", "--product", "QC-N", "-o", "out", *more)


def test_compile_writes_program_listing_and_report(folder: Path) -> None:
    result = compile_tiny("--json", "report.json")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (folder / "out").iterdir()) == [f"{MODULE}.epu", f"{MODULE}.lst"]
    assert "Module Name" in result.output
    report = json.loads((folder / "report.json").read_text())
    assert report["module"] == MODULE
    assert report["host_nodes"] == []
    assert set(report["seconds"]) >= {"onnx_ingest", "optimize_relay"}


def test_run_gives_what_ort_gives(folder: Path) -> None:
    compile_tiny()
    result = invoke("run", f"out/{MODULE}.epu", "--inputs", "in.npz", "-o", "out.npz")
    assert result.exit_code == 0, result.output
    assert "TotalCycles" in result.output
    with np.load("out.npz") as outputs:
        np.testing.assert_array_equal(outputs["y"], np.maximum(np.rint(X * 2) / 2, 0))
    raw = invoke("run", f"out/{MODULE}.epu", "--inputs", "in.npz", "-o", "raw.npz", "--raw")
    assert raw.exit_code == 0
    with np.load("raw.npz") as outputs, np.load("out.npz") as reals:
        np.testing.assert_array_equal(outputs["y"], reals["y"] * 2**FRAC)


def test_run_reads_and_writes_the_raw_files_of_a_run_directory(folder: Path) -> None:
    compile_tiny()
    raw = np.rint(X * 2**FRAC).astype("<i4")
    raw.tofile("input.bin")
    for inputs in ("input.bin", "."):
        done = invoke("run", f"out/{MODULE}.epu", "--inputs", inputs, "-o", "logits.bin")
        assert done.exit_code == 0, done.output
    invoke("run", f"out/{MODULE}.epu", "--inputs", "in.npz", "-o", "out.npz", "--raw")
    with np.load("out.npz") as outputs:
        assert Path("logits.bin").read_bytes() == outputs["y"].astype("<i4").tobytes()
    assert invoke("run", f"out/{MODULE}.epu", "--inputs", "in.npz", "-o", ".").exit_code == 0
    assert Path("output.bin").read_bytes() == Path("logits.bin").read_bytes()


def test_raw_files_belong_to_one_program(folder: Path) -> None:
    done = invoke("run", "job.json", "--inputs", "input.bin", "-o", "out.npz")
    assert done.exit_code == 2
    assert "'input.bin': a job of several stages reads and writes reals. Give an .npz file." in done.output


def test_run_imports_neither_tvm_nor_onnx(folder: Path) -> None:
    compile_tiny()
    code = (
        "import sys; sys.argv = ['epu', 'run', sys.argv[1], '--inputs', 'in.npz', '-o', 'out.npz']\n"
        "from epu.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "print(sorted({'tvm', 'onnx', 'onnxruntime'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, f"out/{MODULE}.epu"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    assert (folder / "out.npz").exists()


def test_run_works_without_click_and_tabulate(folder: Path) -> None:
    compile_tiny()
    code = (
        "import sys\n"
        "for name in ('click', 'tabulate', 'rich', 'onnx', 'onnxruntime', 'tvm'): sys.modules[name] = None\n"
        "from epu.cli import main\n"
        "main(['run', sys.argv[1], '--inputs', 'in.npz', '-o', 'bare.npz'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, f"out/{MODULE}.epu"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    invoke("run", f"out/{MODULE}.epu", "--inputs", "in.npz", "-o", "out.npz")
    assert (folder / "bare.npz").read_bytes() == (folder / "out.npz").read_bytes()


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
@pytest.mark.parametrize("command", ["run", "disasm"])
def test_a_damaged_program_is_refused_and_nothing_is_written(folder: Path, command: str, damage: str) -> None:
    compile_tiny()
    data = bytearray((folder / "out" / f"{MODULE}.epu").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "bad.epu").write_bytes({"truncate": bytes(data[:-7]), "flip": bytes(data), "empty": b""}[damage])
    more = ["--inputs", "in.npz", "-o", "no.npz"] if command == "run" else ["-o", "no.txt"]
    result = invoke(command, "bad.epu", *more)
    assert result.exit_code == 2, result.output
    assert result.output.startswith("Error: ")
    assert len(result.output.strip().splitlines()) == 1
    assert not list(folder.glob("no.*"))


def test_a_missing_program_is_a_user_error(folder: Path) -> None:
    for arguments in (["run", "absent.epu", "--inputs", "in.npz", "-o", "no.npz"], ["disasm", "absent.epu"]):
        result = invoke(*arguments)
        assert result.exit_code == 2
        assert "'absent.epu' cannot be read" in result.output


def test_run_refuses_inputs_that_do_not_fit(folder: Path) -> None:
    compile_tiny()
    np.savez("other.npz", z=X)
    result = invoke("run", f"out/{MODULE}.epu", "--inputs", "other.npz", "-o", "no.npz")
    assert result.exit_code == 2
    assert "'z' is no input of the program. Inputs: x [1, 8]." in result.output
    assert not (folder / "no.npz").exists()


def test_disasm_prints_the_listing(folder: Path) -> None:
    compile_tiny()
    printed = invoke("disasm", f"out/{MODULE}.epu")
    assert printed.exit_code == 0, printed.output
    assert printed.output.strip() == (folder / "out" / f"{MODULE}.lst").read_text().strip()


def validate(*more: object) -> Result:
    hardware = ["--tranges", "tiny.tranges", "--product", "QC-N"]
    return invoke("validate", "tiny.onnx", *hardware, "--inputs", "in.npz", "--json", "v.json", *more)


def test_validate_passes_and_writes_the_form(folder: Path) -> None:
    result = validate("--rows", "isolated")
    assert result.exit_code == 0, result.output
    assert "quantize:0 (PASS, Node, int8)" in result.output
    form: dict[str, Any] = json.loads((folder / "v.json").read_text())
    assert (form["model"], form["rounding"], form["summary"]["nodes"]) == ("tiny.onnx", "exact", 3)
    assert set(form["summary"]["seconds"]) == {"ort", "iss"}


def test_validate_exits_with_1_where_a_gate_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = (*QUANTIZE[:3], QUANTIZE[3].__class__(**{**vars(QUANTIZE[3]), "saturate": False}), *QUANTIZE[4:])
    use_module(monkeypatch, TinyModule(program=tiny_program(swapped)))
    np.savez("in.npz", x=np.full(SHAPE, 100.0, np.float32))
    result = validate("--rounding", "ort")
    assert result.exit_code == 1, result.output
    assert "isolated: 1 node outputs miss the gate" in result.output
    assert json.loads((folder / "v.json").read_text())["summary"]["iss_equals_golden"] is False


def test_an_output_without_ending_is_refused_before_it_runs() -> None:
    result = invoke("run", "absent.epu", "--inputs", "in.npz", "-o", "results")
    assert result.exit_code == 2
    assert "'results' must be an .npz file, a .bin file or a folder that is there" in result.output
