"""What is tracked, what is installed, and that the README's commands are the Makefile's and CI's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LARGEST_BYTES = 5_000_000
MACHINE_PATH = re.compile(r"(?<![\w.$~{}-])/(?:home|Users|root|work|mnt|scratch)/[\w.-]+")
REGISTRY_ADDRESS = re.compile(
    r"https?://[^\s\"'`>)]*/(?:simple|packages|pool|dists)(?:/|\b)|https?://(?:[\w-]+\.)*(?:pypi|pythonhosted)\.\w+"
)


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file()]


def lines_matching(pattern: re.Pattern[str]) -> Iterator[str]:
    for path in tracked_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # a picture or a model
        for number, line in enumerate(lines, 1):
            if pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"


def test_no_large_file() -> None:
    assert [str(path) for path in tracked_files() if path.stat().st_size > LARGEST_BYTES] == []


def test_no_path_of_one_machine() -> None:
    assert list(lines_matching(MACHINE_PATH)) == []


def test_no_registry_address() -> None:
    assert list(lines_matching(REGISTRY_ADDRESS)) == []


@pytest.mark.parametrize(
    ("line", "is_bad"),
    [
        ("x = '/" + "home/ann/model.onnx'", True),
        ("cd /" + "work/main", True),
        ("~/.pyenv/versions", False),
        ("a /opt/*/bin", False),
    ],
)
def test_machine_path_pattern(line: str, is_bad: bool) -> None:
    assert bool(MACHINE_PATH.search(line)) is is_bad


@pytest.mark.parametrize(
    ("line", "is_bad"),
    [("https" + "://mirror.example/simple/", True), ("https" + "://example.org/licenses/LICENSE-2.0", False)],
)
def test_registry_address_pattern(line: str, is_bad: bool) -> None:
    assert bool(REGISTRY_ADDRESS.search(line)) is is_bad


@pytest.mark.parametrize("name", ["requirements.txt", "tools/uv.txt"])
def test_requirements_are_pinned_and_hashed(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    entries = [entry for entry in re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", text)).splitlines() if entry]
    assert entries
    assert [
        entry[:80] for entry in entries if not re.match(r"[\w.-]+==[\w.]+ +(--hash=sha256:[0-9a-f]{64} *)+$", entry)
    ] == []


INPUT_FILES = [f"requirements{part}.in" for part in ("", "-relay", "-notebooks", "-dev")]


@pytest.mark.parametrize("name", INPUT_FILES)
def test_each_requirement_is_locked_and_explained(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    wanted = {re.split(r"[<>=!~ ]", line)[0] for line in lines if line and not line.startswith("#")}
    locked = set(re.findall(r"(?m)^([\w.-]+)==", (ROOT / "requirements.txt").read_text(encoding="utf-8")))
    explained = set(re.findall(r"`([\w.-]+)`", (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")))
    assert wanted <= locked
    assert wanted <= explained


def makefile_targets() -> set[str]:
    return set(re.findall(r"(?m)^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8")))


def test_commands_of_the_readme_exist() -> None:
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert {"demo", "test"} <= named <= makefile_targets()


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert re.findall(r"(?m)^.*\bmake .*$", script.read_text(encoding="utf-8")) == ["exec make test"]


def test_generated_pages_say_what_the_code_says() -> None:
    check = [sys.executable, "tools/generate_docs.py", "--check"]
    result = subprocess.run(check, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel of the tracked files would put into site-packages."""
    folder = tmp_path_factory.mktemp("wheel")
    for path in tracked_files():
        copy = folder / "source" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=folder / "source", check=True, capture_output=True)
    (wheel,) = folder.glob("epu-*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def test_wheel_installs_names_under_epu_only(installed: Path) -> None:
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} == {"epu", "epu_tvmc.pth"}


@pytest.mark.parametrize("folder", ["python/epu", "simulator", "tir_schedules", "relay_passes"])
def test_wheel_holds_every_module(installed: Path, folder: str) -> None:
    package = installed / "epu" / ("" if folder == "python/epu" else folder)
    modules = [path.relative_to(ROOT / folder) for path in tracked_files() if path.is_relative_to(ROOT / folder)]
    assert modules
    assert [str(module) for module in modules if not (package / module).is_file()] == []


def test_wheel_finds_its_notebooks_and_copies_them(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    copy = [sys.executable, "-m", "epu.cli", "notebook", "--copy", str(tmp_path / "copies")]
    subprocess.run(copy, cwd=tmp_path, env=environment, check=True, capture_output=True)
    sources = {path.name: path.read_bytes() for path in tracked_files() if path.parent == ROOT / "notebooks"}
    assert sources
    assert {path.name: path.read_bytes() for path in (tmp_path / "copies").iterdir()} == sources
    assert {path.name for path in (installed / "epu" / "notebooks").iterdir()} == set(sources)


def test_wheel_works_without_the_checkout(installed: Path) -> None:
    script = "import epu.graph, epu.simulator; print(epu.graph.__file__, epu.simulator.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=installed, env=environment, check=True, capture_output=True, text=True
    )
    assert [Path(name).is_relative_to(installed) for name in run.stdout.split()] == [True, True]
