"""The custom operators of a module: the object itself, its dotted name, or the path of its file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Union

from epu.custom_ops import CustomOp
from epu.errors import ConfigError, EpuError, UserError

Source = Union[ModuleType, str, "os.PathLike[str]"]

SUFFIX = ".py"
FOREIGN = (".hpp", ".h", ".cpp", ".cc", ".so", ".onnx")  # what is a file although it reads as a dotted name


def load_custom_ops(source: Source) -> dict[str, CustomOp]:
    """Operators by name. Raises ConfigError for what is no module, UserError for one that is missing, fails or is empty."""
    module = _module(source)
    title = source_title(source)
    found: dict[str, CustomOp] = {}
    for op in _globals(module):
        if found.setdefault(op.name, op) is not op:
            raise UserError(f"custom_ops '{title}': names must differ, found two operators '{op.name}'. Rename one.")
    if not found:
        raise UserError(f"custom_ops '{title}' must hold an operator, found none. Register one with epu.custom_op.")
    return found


def source_title(source: Source) -> str:
    """How reports name it."""
    return source.__name__ if isinstance(source, ModuleType) else os.fspath(source)


def _globals(module: ModuleType) -> list[CustomOp]:
    return [value for value in vars(module).values() if isinstance(value, CustomOp)]


def _module(source: Source) -> ModuleType:
    if isinstance(source, ModuleType):
        return source
    if not isinstance(source, (str, os.PathLike)):
        raise ConfigError(
            f"custom_ops must be a module, its dotted name or the path of a .py file, found {type(source).__name__}."
        )
    text = os.fspath(source)
    is_path = isinstance(source, os.PathLike) or os.sep in text or text.endswith((SUFFIX, *FOREIGN))
    if is_path:
        return _from_file(Path(text))
    return _from_name(text)


def _from_file(path: Path) -> ModuleType:
    if path.suffix != SUFFIX:
        raise ConfigError(
            f"custom_ops '{path}' must be a Python file, found '{path.suffix}'. Kernels are written in TIR."
        )
    if not path.is_file():
        raise UserError(f"custom_ops '{path}' does not exist. Give the path of a Python file.")
    name = f"epu_custom_ops_{hashlib.sha256(os.fspath(path.resolve()).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and TVMScript of the file look their module up
    try:
        spec.loader.exec_module(module)
    except EpuError:
        raise
    except Exception as error:  # whatever the user's file raises
        raise UserError(f"custom_ops '{path}' cannot be run: {type(error).__name__}: {error}. Repair it.") from error
    return module


def _from_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except EpuError:
        raise
    except Exception as error:  # a missing module, or whatever the user's module raises
        raise UserError(
            f"custom_ops '{name}' cannot be imported: {type(error).__name__}: {error}. "
            "Give a module on the path, or the path of a .py file."
        ) from error
