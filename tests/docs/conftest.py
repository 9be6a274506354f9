"""What the pages' tests share. ``pytest tests/docs --rewrite-outputs`` writes what the examples print into the pages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-outputs", action="store_true", help="write into the pages what their examples print")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether to rewrite; False where the folder was not named on the command line."""
    return bool(request.config.getoption("--rewrite-outputs", default=False))
