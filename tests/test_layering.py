"""The direction of imports (docs/design.md, "Parts and imports"): read from every file, and seen at run time."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import epu

ROOT = Path(__file__).resolve().parent.parent
TVM_DOOR = "epu.tir_schedules.tvm_api"
ONNX = {"onnx", "onnxruntime"}
HEAVY = {"tvm", *ONNX}


@dataclass(frozen=True)
class Part:
    """A folder, and what its modules may name in an import, at any depth of the code."""

    folder: str
    package: str
    libraries: frozenset[str]
    epu: tuple[str, ...]  # prefixes of modules of ours


ARRAYS = frozenset({"numpy", "scipy", "threadpoolctl"})  # the last one only where it is installed
KERNELS = ("epu.simulator", "epu.tir_schedules", "epu.graph")
PARTS = (
    Part("simulator", "epu.simulator", ARRAYS, ("epu.simulator",)),
    Part("tir_schedules", "epu.tir_schedules", ARRAYS, KERNELS),
    Part("relay_passes", "epu.relay_passes", ARRAYS | HEAVY, (*KERNELS, "epu.relay_passes")),
    Part(
        "python/epu", "epu", ARRAYS | HEAVY | {"click", "jinja2", "matplotlib", "pandas", "rich", "tabulate"}, ("epu",)
    ),
)


@dataclass(frozen=True)
class Import:
    """One imported module, where it stands, and whether it runs when its file is imported."""

    importer: str
    path: Path
    line: int
    name: str
    at_import: bool

    @property
    def library(self) -> str:
        return self.name.split(".")[0]

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} imports {self.name}"


def module_name(part: Part, path: Path) -> str:
    inside = path.relative_to(ROOT / part.folder).with_suffix("").parts
    return ".".join([part.package, *(inside[:-1] if inside[-1] == "__init__" else inside)])


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imported_names(node: ast.Import | ast.ImportFrom, importer: str, is_package: bool) -> list[str]:
    """``from a import b`` may mean the module ``a`` or ``a.b``: within ``epu`` the longer name decides."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    package = importer.split(".")
    if node.level:
        package = package[: len(package) - node.level + is_package]
    base = ".".join([*(package if node.level else []), *([node.module] if node.module else [])])
    if base.split(".")[0] == "epu":
        return [f"{base}.{alias.name}" for alias in node.names]
    return [base]


def imports_below(node: ast.AST, part: Part, path: Path, at_import: bool) -> list[Import]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        importer = module_name(part, path)
        names = imported_names(node, importer, path.name == "__init__.py")
        return [Import(importer, path, node.lineno, name, at_import) for name in names]
    inside_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    runs = at_import and not inside_function and not is_type_checking(node)
    return [found for child in ast.iter_child_nodes(node) for found in imports_below(child, part, path, runs)]


def imports_of(part: Part) -> list[Import]:
    paths = sorted((ROOT / part.folder).rglob("*.py"))
    trees = [(path, ast.parse(path.read_text(encoding="utf-8"), str(path))) for path in paths]
    return [found for path, tree in trees for found in imports_below(tree, part, path, at_import=True)]


def is_within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{prefix}.") for prefix in prefixes)


def is_allowed(found: Import, part: Part) -> bool:
    if found.library == "epu":
        hook = part.package == "epu.relay_passes" and not found.at_import  # its build hook calls the compiler above it
        return hook or is_within(found.name, part.epu)
    if found.library == "tvm" and found.importer == TVM_DOOR:
        return True
    return found.library in sys.stdlib_module_names or found.library in part.libraries


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.folder)
def test_a_part_imports_only_what_its_row_allows(part: Part) -> None:
    assert [str(found) for found in imports_of(part) if not is_allowed(found, part)] == []


def test_typed_graph_has_no_tvm() -> None:
    assert [
        str(found) for found in imports_of(PARTS[-1]) if found.importer == "epu.graph" and found.library == "tvm"
    ] == []


def test_epu_modules_import_tvm_inside_functions_only() -> None:
    doors = ("epu.tir_schedules", "epu.relay_passes")
    eager = [found for found in imports_of(PARTS[-1]) if found.at_import]
    assert [str(found) for found in eager if found.library == "tvm" or is_within(found.name, doors)] == []


def heavy_modules_after(statement: str) -> list[str]:
    """Which heavy libraries a fresh interpreter holds after ``statement``."""
    script = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({HEAVY | {'matplotlib', 'pandas'}!r} & set(sys.modules))))"
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    loaded: list[str] = json.loads(shown.splitlines()[-1])
    return loaded


@pytest.mark.parametrize("module", ["epu", "epu.simulator", "epu.graph", "epu.cli"])
def test_import_is_light(module: str) -> None:
    if module == "epu.cli" and not (ROOT / "python/epu/cli.py").exists() and not (ROOT / "python/epu/cli").exists():
        pytest.skip("the command line has not landed")
    assert heavy_modules_after(f"import {module}") == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import tvm", [("tvm", True)]),
        ("def f():\n    from tvm import relay", [("tvm", False)]),
        ("if TYPE_CHECKING:\n    import onnx.helper", [("onnx.helper", False)]),
        ("class C:\n    try:\n        import onnx\n    except ImportError:\n        pass", [("onnx", True)]),
        ("from .machine import Machine", [("epu.simulator.machine.Machine", True)]),
        ("from . import machine, isa", [("epu.simulator.machine", True), ("epu.simulator.isa", True)]),
        ("from epu import cli", [("epu.cli", True)]),
    ],
)
def test_the_reader_of_imports(source: str, expected: list[tuple[str, bool]]) -> None:
    found = imports_below(ast.parse(source), PARTS[0], ROOT / "simulator" / "alu.py", at_import=True)
    assert [(each.name, each.at_import) for each in found] == expected


def test_relative_import_in_a_package_starts_at_the_package() -> None:
    found = imports_below(
        ast.parse("from .alu import Alu"), PARTS[0], ROOT / "simulator/isa/__init__.py", at_import=True
    )
    assert [each.name for each in found] == ["epu.simulator.isa.alu.Alu"]


def test_no_public_name_is_that_of_a_module() -> None:
    """Importing ``epu.placement`` would put the module in the place of the function of that name."""
    modules = {path.stem for path in (ROOT / "python/epu").iterdir()}
    assert modules & epu.LAZY.keys() == set()
