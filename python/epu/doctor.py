"""What is installed and what is wrong with it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata

Fact = tuple[str, str]

PACKAGES = ("epu", "numpy", "scipy", "onnx", "onnxruntime", "hhb-tvm", "apache-tvm", "click", "rich", "tabulate")
NEEDED = ("numpy", "scipy", "onnx", "onnxruntime", "click", "rich", "tabulate")
OLDEST_PYTHON = (3, 10)
RELAY_REMEDY = "On CPython 3.10 install requirements.txt, which holds hhb-tvm==3.2.3; `epu run` works without TVM."


def examine() -> tuple[list[Fact], list[str]]:
    """The facts as (what, value), and one sentence with a remedy for each problem."""
    door, door_problem = tvm_door()
    facts = [
        ("Python", f"{platform.python_version()} ({sys.executable})"),
        ("System", f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"),
        ("CPU", _cpu()),
        *((name, version(name)) for name in PACKAGES),
        ("TVM door", door),
    ]
    return facts, [*_problems(), *door_problem]


def version(package: str) -> str:
    """Installed version, or "not installed"."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def tvm_door() -> tuple[str, list[str]]:
    """Which door to TVM works here, and the problem if none does."""
    if importlib.util.find_spec("tvm") is None:
        return "none", [f"tvm is not installed, so models cannot be compiled. {RELAY_REMEDY}"]
    try:
        tvm = importlib.import_module("tvm")
        importlib.import_module("tvm.relay")
    except Exception as error:  # a broken TVM fails in many ways: missing library, numpy too new, ...
        return "broken", [f"tvm does not import Relay ({type(error).__name__}: {error}). {RELAY_REMEDY}"]
    return f"Relay (tvm {tvm.__version__})", []


def _problems() -> Iterator[str]:
    if sys.version_info[:2] < OLDEST_PYTHON:
        yield f"Python must be 3.10 or newer, found {platform.python_version()}. Run `make venv`."
    for name in NEEDED:
        if version(name) == "not installed":
            yield f"{name} is not installed. Install it with `pip install -r requirements.txt`."
    if version("numpy").startswith("2.") and version("hhb-tvm") != "not installed":
        yield f"hhb-tvm needs numpy below 2, found {version('numpy')}. Install numpy==1.26.4."
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads) > (os.cpu_count() or 1):
        yield f"OMP_NUM_THREADS is {threads} on {os.cpu_count()} CPUs, which slows all down. Unset it."


def _cpu() -> str:
    if importlib.util.find_spec("onnxruntime") is None:
        return platform.processor() or platform.machine()
    from epu.ort_reference import cpu_description

    return cpu_description()
