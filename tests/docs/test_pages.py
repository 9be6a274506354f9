"""The examples in the documentation run as written, and print what the pages say."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from page_blocks import Block, blocks

ROOT = Path(__file__).resolve().parents[2]
RUNNER = Path(__file__).with_name("run_page.py")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(page: Path) -> list[Block]:
    return [block for block in blocks(page.read_text(encoding="utf-8")) if block.is_run]


def run(page: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(RUNNER), str(page), *options],
        cwd=folder,
        env={**os.environ, "COLUMNS": "120", "TERM": "dumb", "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
    )


WITH_EXAMPLES = [page for page in PAGES if examples(page) and examples(page)[0].mark != "slow"]
WITH_SLOW_ONES = [page for page in PAGES if any(block.mark == "slow" for block in examples(page))]


needs_tvm = pytest.mark.skipif(find_spec("tvm") is None, reason="the pages compile models, which needs TVM")


@needs_tvm
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_examples_run(page: Path, tmp_path: Path, rewrite: bool) -> None:
    done = run(page, tmp_path, *["--rewrite"] * rewrite)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]


@needs_tvm
@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_SLOW_ONES, ids=lambda page: page.stem)
def test_slow_examples_run(page: Path, tmp_path: Path, rewrite: bool) -> None:
    done = run(page, tmp_path, "--slow", *["--rewrite"] * rewrite)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]


def test_the_tutorial_is_run() -> None:
    assert {"README", "tutorial", "worked_numbers", "extending"} <= {page.stem for page in WITH_EXAMPLES}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("```python\n\n1 / 0\n```\n", 'page.md", line 3'),
        ("```python\nprint(2)\n```\n<!-- output -->\n```text\n3\n```\n", "page.md:6: the output is another"),
        ("```sh\necho\nepu nonsense\n```\n", "page.md:3: exit code 2, not 0: epu nonsense"),
        ("```python\nprint(1)\n", "not closed"),
    ],
)
def test_a_wrong_example_is_found(body: str, message: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(body)
    done = run(page, tmp_path)
    assert done.returncode == 1
    assert message in done.stderr


def test_blocks_share_names_and_marks_are_heard(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\na = 2\n```\n<!-- skip: no such module -->\n```python\nimport nonsense\n```\n"
        "```python\nprint(a, 'x', 0.25)\n```\n<!-- output -->\n```text\n2 ... 0.25\n```\n"
        "<!-- exit 2 -->\n```sh\nepu nonsense  # a comment\n```\n<!-- slow -->\n```python\n1 / 0\n```\n"
    )
    assert run(page, tmp_path).returncode == 0
    assert "ZeroDivisionError" in run(page, tmp_path, "--slow").stderr


def test_outputs_are_rewritten(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    body = "```python\nprint('a\\nb')\n```\n<!-- output -->\n```text\n{}\n```\nend\n"
    page.write_text(body.format("c") * 2)
    assert run(page, tmp_path, "--rewrite").returncode == 0
    assert page.read_text() == body.format("a\nb") * 2
