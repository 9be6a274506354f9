"""What is wrong with the arguments is told before the model is compiled, not after minutes of work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from epu.cli.group import epu
from epu.errors import UserError
from epu.files import require_writable
from epu.job import ChimeraJob
from epu.raw_tensors import wrong_shape
from epu.sample_inputs import _normal


@pytest.fixture
def nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(job: Any) -> None:
        raise AssertionError("compiled before the arguments were checked")

    monkeypatch.setattr(ChimeraJob, "compile", refuse)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(epu, [str(each) for each in arguments])


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        ("validate", ["--inputs", "none.npz"], "'none.npz' does not exist"),
        ("validate", ["--json", "folder"], "'folder' must be a file"),
        ("validate", ["--run-dir", "file"], "'file' must be a folder"),
        ("validate", ["--rtol", "-1"], "-1.0 is not in the range"),
        ("bisect", ["-o", "out", "--inputs", "none.npz"], "'none.npz' does not exist"),
        ("bisect", ["-o", "folder"], "must not exist yet"),
        ("bisect", ["-o", "file/out"], "'file/out' cannot be written"),
        ("sweep", ["-o", "file"], "'file' must be a folder"),
        ("compile", ["-o", "file"], "'file' must be a folder"),
        ("compile", ["-o", "file/out"], "'file/out' cannot be written"),
        ("compile", ["-o", "out", "--json", "folder"], "'folder' must be a file"),
    ],
)
def test_bad_paths_are_refused_first(
    command: str,
    options: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nothing_compiles: None,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").touch()
    result = invoke(command, "m.onnx", *options)
    assert result.exit_code == 2, result.output
    assert words in result.output


def test_a_path_that_can_be_made_passes_and_is_not_made(tmp_path: Path) -> None:
    require_writable(tmp_path / "a" / "b.json")
    require_writable(tmp_path / "a" / "b", folder=True)
    require_writable(tmp_path, folder=True)
    assert not list(tmp_path.iterdir())


def test_stacked_samples_are_told_from_another_shape() -> None:
    assert "These are 8 samples: give one, x=array[0]." in str(wrong_shape("x", (1, 3), (8, 1, 3)))
    assert "Give one sample of that shape." in str(wrong_shape("x", (1, 3), (3,)))


@pytest.mark.parametrize("option", [["--per-channel"], ["--exclude", "Conv"], ["--accuracy-drop", "0.1"]])
def test_ranges_only_takes_no_option_that_it_would_ignore(option: list[str], tmp_path: Path) -> None:
    result = invoke("quantize", "m.onnx", "-o", tmp_path, "--synthetic", 1, "--ranges-only", *option)
    assert result.exit_code == 2
    assert f"--ranges-only must come without options of quantisation, found {option[0]}" in result.output


def test_no_input_of_the_sample_is_all_zero() -> None:
    arrays = {dtype: np.zeros((64,), dtype) for dtype in ("float32", "int8", "uint8", "int32", "int64", "bool")}
    found = _normal(arrays, {})
    assert all(found[name].dtype == name and found[name].any() for name in arrays)
    assert found["int8"].min() < -64
    assert found["uint8"].max() > 192
    assert set(found["int64"].tolist()) == {0, 1}


def test_require_writable_names_the_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/a/b' cannot be written: '.*/file' allows none"):
        require_writable(tmp_path / "file" / "a" / "b")
