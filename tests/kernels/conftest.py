"""Makes ``one_node`` and ``node_cases`` importable: pytest's importlib mode leaves the folder out of the path.

``pytest tests/kernels --update-listings`` rewrites ``expected/``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-listings", action="store_true", help="rewrite the expected listings of kernels")


@pytest.fixture
def update_listings(request: pytest.FixtureRequest) -> bool:
    """Whether to rewrite; False where the folder was not named on the command line."""
    return bool(request.config.getoption("--update-listings", default=False))
