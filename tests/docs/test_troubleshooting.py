"""Each message that docs/troubleshooting.md explains is one that the source can print."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/troubleshooting.md"
SOURCES = ("python/epu", "simulator", "tir_schedules", "relay_passes")
MESSAGE = re.compile(r"(?m)^\| `([^`]+)` \|")
ANY = "…"


def texts() -> Iterator[str]:
    """Every string of the source but docstrings, with … for what is filled in."""
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(str(each.value) if isinstance(each, ast.Constant) else ANY for each in node.values)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                    yield node.value


@pytest.fixture(scope="module")
def source() -> str:
    return "\n".join(texts())


def pattern(message: str) -> re.Pattern[str]:
    """The message within one string of the source; … stands for any text of it."""
    return re.compile(".*".join(map(re.escape, message.split(ANY))))


MESSAGES = MESSAGE.findall(PAGE.read_text(encoding="utf-8"))


def test_there_are_messages() -> None:
    assert len(MESSAGES) > 40
    assert len(set(MESSAGES)) == len(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES)
def test_message_exists(message: str, source: str) -> None:
    assert pattern(message).search(source), "no string of the source reads like that"


@pytest.mark.parametrize(
    "message", ["has no shape. Fix this: --shape …", "no such message", "LRM holds … bytes for PE"]
)
def test_other_messages_are_found_out(message: str, source: str) -> None:
    assert not pattern(message).search(source)
