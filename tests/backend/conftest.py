"""ONNX's node cases by name, generated once."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests


@pytest.fixture(scope="session")
def node_cases() -> dict[str, TestCase]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logger = logging.getLogger("epu")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)
