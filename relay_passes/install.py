"""What is installed into TVM, and when: one function per module of TVM, called when that module has been imported.

Any of our modules may be the one whose import brings TVM in and be incomplete itself, so what is installed here
imports the rest of this folder when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module

PACKAGE = "epu.relay_passes"


def after_tvm() -> None:
    """Targets "epu" and "llvm", and the function that exported libraries call."""
    import_module(f"{PACKAGE}.tvm_target")
    import_module(f"{PACKAGE}.runtime")


def after_relay() -> None:
    """Code generator, build hooks and the repaired ONNX importer."""
    from epu.relay_passes import build_hooks

    relay = sys.modules["tvm.relay"]
    build_hooks.hook_builders(relay)
    build_hooks.hook_from_onnx(relay)


def after_executor(name: str) -> None:
    """Errors of the simulator keep their text."""
    from epu.relay_passes import build_hooks

    build_hooks.hook_executors(sys.modules[name])


def after_tvmc(name: str) -> None:
    """The code generator "epu" of ``tvmc compile``."""
    from epu.relay_passes import tvmc

    (tvmc.register if name.endswith("composite_target") else tvmc.hook_targets)(sys.modules[name])
