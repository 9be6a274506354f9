"""Every notebook is committed without outputs and runs from top to bottom; ``epu notebook`` copies and opens them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner, Result

from epu.cli.group import epu

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NAMES = {
    "custom_op", "detr_encoder", "hardware_sweep", "relay_build", "waveformer", "why_is_this_layer_wrong"
}  # fmt: skip

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def load(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def executed(notebook: Any, folder: Path) -> Any:
    """The notebook with its outputs, after a run in a kernel of its own whose working folder is ``folder``."""
    source, target = folder / "source.ipynb", folder / "executed.ipynb"
    nbformat.write(notebook, source)
    run = [sys.executable, Path(__file__).with_name("execute_notebook.py"), source, target]
    done = subprocess.run(run, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return load(target)


def shown(notebook: Any) -> set[str]:
    """The kinds of output of all cells."""
    return {kind for cell in code_cells(notebook) for output in cell.outputs for kind in output.get("data", ())}


def test_the_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} == NAMES


@each_notebook
def test_is_valid_and_without_outputs(path: Path) -> None:
    notebook = load(path)
    nbformat.validate(notebook)
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(notebook))
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert all(not cell.metadata for cell in notebook.cells)


@each_notebook
def test_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    notebook = executed(load(path), tmp_path)
    assert {"image/png", "text/html"} <= shown(notebook)
    assert [cell.execution_count for cell in code_cells(notebook)] == list(range(1, len(code_cells(notebook)) + 1))


@pytest.mark.slow
@pytest.mark.parametrize("layer", range(6))
def test_any_layer_of_the_encoder_alone(layer: int, tmp_path: Path) -> None:
    notebook = load(FOLDER / "detr_encoder.ipynb")
    changes = {"SEQUENCE = 360": "SEQUENCE = 60", "LAYER = 3": f"LAYER = {layer}"}
    for old, new in changes.items():
        (cell,) = [cell for cell in code_cells(notebook) if old in cell.source]
        cell.source = cell.source.replace(old, new)
    executed(notebook, tmp_path)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(epu, ["notebook", *map(str, arguments)])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """What ``epu notebook`` would have become."""
    calls: list[list[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execv", lambda program, arguments: calls.append([program, *arguments[1:]]))
    return calls


def test_list_tells_names_and_titles(started: list[list[str]]) -> None:
    listed = invoke("--list").output
    assert all(name in listed for name in NAMES)
    assert "DETR transformer encoder on the EPU" in listed
    assert not started


def test_all_are_copied_and_their_folder_opened(started: list[list[str]]) -> None:
    done = invoke()
    assert done.exit_code == 0, done.output
    assert {path.name for path in Path("epu_notebooks").iterdir()} == {path.name for path in NOTEBOOKS}
    assert started == [[sys.executable, "-m", "jupyterlab", "epu_notebooks"]]


def test_a_copy_that_was_edited_stays(started: list[list[str]]) -> None:
    copy = Path("epu_notebooks") / "detr_encoder.ipynb"
    copy.parent.mkdir()
    copy.write_text("mine")
    done = invoke("detr_encoder.ipynb", "--no-browser", "--jupyter=--port=9000")
    assert done.output == f"Kept {copy}\n"
    assert copy.read_text() == "mine"
    assert started == [[sys.executable, "-m", "jupyterlab", str(copy), "--no-browser", "--port=9000"]]


def test_copy_starts_nothing(started: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert invoke("waveformer", "--copy", "mine").output == "Copied mine/waveformer.ipynb\n"
    assert Path("mine/waveformer.ipynb").read_bytes() == (FOLDER / "waveformer.ipynb").read_bytes()
    assert not started


def test_without_jupyter_it_says_what_to_install(started: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = invoke()
    assert done.exit_code == 2
    assert "needs jupyterlab and ipykernel, not installed here. Install it: pip install 'epu[notebooks]'" in done.output
    assert not started
    assert not Path("epu_notebooks").exists()


def test_an_unknown_name_is_refused(started: list[list[str]]) -> None:
    done = invoke("detr")
    assert done.exit_code == 2
    assert "there is no notebook 'detr'. Known: 'custom_op', 'detr_encoder'" in done.output
    assert not started
