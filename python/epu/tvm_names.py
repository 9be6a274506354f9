"""The import paths under ``tvm.contrib.epu`` that users of the commercial SDK write, as other names of our modules.

``import epu`` installs them; TVM itself stays as it is. Each alias module hands out the attributes of the module it stands for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PACKAGE = "tvm.contrib.epu"

# alias -> our module; None for a package that holds only others
ALIASES: dict[str, str | None] = {
    PACKAGE: "epu",
    f"{PACKAGE}.chimera_job": None,
    f"{PACKAGE}.chimera_job.chimera_job": "epu.job",
    f"{PACKAGE}.chimera_job.hw_config": "epu.hw_config",
    f"{PACKAGE}.chimera_job.quantize": "epu.quantize",
    f"{PACKAGE}.onnx_util": "epu.onnx_util",
}


class _AliasModule(ModuleType):
    """A module without content of its own; names are looked up in ``_target`` when they are asked for."""

    _target: str | None = None

    def __getattr__(self, name: str) -> Any:
        if self._target is None or name.startswith("__"):
            raise AttributeError(f"module '{self.__name__}' has no attribute {name!r}")
        return getattr(import_module(self._target), name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(dir(import_module(self._target)) if self._target else ())})


class _AliasLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = _AliasModule(spec.name, f"Another name of {ALIASES[spec.name] or 'our modules'}.")
        module._target = ALIASES[spec.name]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


class AliasFinder(MetaPathFinder):
    """Finds the aliases. Python imports ``tvm`` and ``tvm.contrib`` before it asks for them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in ALIASES:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in ALIASES)
        return ModuleSpec(fullname, _AliasLoader(), is_package=is_package)


def install() -> None:
    """Make the aliases importable. Does nothing the second time."""
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.append(AliasFinder())
