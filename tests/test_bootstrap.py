"""The set-up: which interpreters it accepts, which of the user's pip settings it keeps, when it starts afresh."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "tools" / "bootstrap.py"


@pytest.fixture
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_this_interpreter_is_accepted(bootstrap: ModuleType) -> None:
    assert bootstrap.problem(sys.executable) is None


def test_a_dead_shim_is_refused_with_its_own_words(bootstrap: ModuleType, tmp_path: Path) -> None:
    shim = script(tmp_path / "python3.10", 'echo "pyenv: python3.10: command not found" >&2; exit 127')
    assert bootstrap.problem(str(shim)) == "pyenv: python3.10: command not found"


def test_another_version_is_refused_by_name(bootstrap: ModuleType, tmp_path: Path) -> None:
    fake = tmp_path / "sitecustomize.py"
    fake.write_text("import sys; sys.version_info = (3, 12, 1)", encoding="utf-8")
    python = script(tmp_path / "python3.10", f'shift; PYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"')  # drops -I
    assert bootstrap.problem(str(python)).startswith("is CPython 3.12 on ")


def test_search_passes_over_dead_shims(bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = script(tmp_path / "first" / "python3.10", "exit 1")
    alive = script(tmp_path / "second" / "python3.10", f'exec "{sys.executable}" "$@"')
    monkeypatch.setenv("PATH", f"{dead.parent}:{alive.parent}:/usr/bin:/bin")
    monkeypatch.delenv("EPU_PYTHON", raising=False)
    reasons: list[str] = []
    assert bootstrap.find_interpreter(reasons) == str(alive)
    assert reasons == [f"  - {dead}: fails"]


def test_pip_keeps_the_sources_alone(bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in bootstrap.os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nuser = true\nretries = 7\nfind-links = a\n  b\n[install]\nretries = 8\n", "utf-8")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_TARGET", str(tmp_path))
    monkeypatch.setenv("PIP_TIMEOUT", "9")
    settings = bootstrap.pip_settings(sys.executable)
    assert settings["PIP_RETRIES"] == "8"
    assert settings["PIP_TIMEOUT"] == "9"
    assert settings["PIP_FIND_LINKS"].split() == ["a", "b"]
    assert settings["PIP_CONFIG_FILE"] == "/dev/null"
    assert not {"PIP_USER", "PIP_TARGET"} & set(settings)


def test_an_environment_without_the_right_stamp_is_made_anew(
    bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr(bootstrap, "STAMP", tmp_path / "ready")
    monkeypatch.setattr(bootstrap, "make_environment", made.append)
    monkeypatch.setattr(bootstrap, "find_interpreter", lambda reasons: "found")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    bootstrap.set_up()
    (tmp_path / "ready").write_text("of other requirements", encoding="utf-8")
    bootstrap.set_up()
    assert made == ["found", "found"]
    (tmp_path / "ready").write_text(bootstrap.fingerprint(), encoding="utf-8")
    bootstrap.set_up()
    assert made == ["found", "found"]
    (tmp_path / "bin" / "python").unlink()
    bootstrap.set_up()
    assert made == ["found", "found", "found"]
