"""Registers the EPU with TVM whenever TVM is imported, before or after ``import epu``, and never imports it itself."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def _after_tvm(name: str) -> None:
    from epu.relay_passes.install import after_tvm

    after_tvm()


def _after_relay(name: str) -> None:
    from epu.relay_passes.install import after_relay

    after_relay()


def _after_executor(name: str) -> None:
    from epu.relay_passes.install import after_executor

    after_executor(name)


def _after_tvmc(name: str) -> None:
    from epu.relay_passes.install import after_tvmc

    after_tvmc(name)


# module of TVM -> what to do once it is imported, in this order where it is there already
CALLBACKS: dict[str, Callable[[str], None]] = {
    "tvm": _after_tvm,
    "tvm.contrib.graph_executor": _after_executor,
    "tvm.contrib.debugger.debug_executor": _after_executor,
    "tvm.runtime.vm": _after_executor,
    "tvm.relay": _after_relay,
    "tvm.driver.tvmc.composite_target": _after_tvmc,
    "tvm.driver.tvmc.target": _after_tvmc,
}


class _Loader(Loader):
    """The module's own loader, followed by our callback."""

    def __init__(self, inner: Loader, spec: ModuleSpec) -> None:
        self.inner = inner
        self.spec = spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.spec.loader = module.__loader__ = self.inner
        self.inner.exec_module(module)
        _imported(self.spec.name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _Finder(MetaPathFinder):
    """Finds nothing itself: has the other finders find TVM's modules, and puts our loader around theirs."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in CALLBACKS:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, spec)
        return spec


_waiting: list[str] = []  # imported by tvm itself, before tvm was complete
_complete: set[str] = set()


def _imported(name: str) -> None:
    """``name`` is complete: call back now, or as soon as tvm is complete."""
    if name != "tvm" and "tvm" not in _complete:
        _waiting.append(name)
        return
    _complete.add(name)
    _call(name)
    while _waiting:
        _call(_waiting.pop(0))


def _call(name: str) -> None:
    """Run a callback; TVM stays usable without us where its version does not fit."""
    try:
        CALLBACKS[name](name)
    except (ImportError, AttributeError) as error:
        warnings.warn(f"epu: target 'epu' is not available with this TVM ({error}). Use TVM 0.11-0.19.", stacklevel=2)


def install() -> None:
    """Call back for what TVM has imported already, and watch for the rest. Does nothing the second time."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name in CALLBACKS:
        if name in sys.modules:
            _imported(name)
