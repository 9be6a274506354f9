"""What is installed into TVM, and when: one function per module of TVM, called when that module has been imported."""

from __future__ import annotations

import sys


def after_tvm() -> None:
    """Targets "epu" and "llvm", and the function that exported libraries call."""
    from epu.relay_passes import runtime, tvm_target

    assert runtime.NAME
    assert tvm_target.HOST


def after_relay() -> None:
    """Code generator, build hooks and the repaired ONNX converters."""
    from epu.relay_passes import build_hooks, codegen, from_onnx_repairs
    from epu.relay_passes.tvm_relay import relay

    assert codegen.compile_function
    build_hooks.hook_builders(relay)
    from_onnx_repairs.install()


def after_executor(name: str) -> None:
    """Errors of the simulator keep their text."""
    from epu.relay_passes import build_hooks

    build_hooks.hook_executors(sys.modules[name])
