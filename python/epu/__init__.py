"""EPU: compiler and instruction-set simulator of a fixed-point GPNPU.

Importing this package is light: the names below load their module when they are first used, and TVM, where and
whenever it is imported, gets the target "epu".
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from epu import tvm_hook, tvm_names

LAZY = {
    "ChimeraJob": "epu.job",
    "Composer": "epu.custom_compose",
    "CustomCall": "epu.custom_ops",
    "CustomKernel": "epu.custom_ops",
    "CustomOp": "epu.custom_ops",
    "CustomOutput": "epu.custom_ops",
    "HWConfig": "epu.hw_config",
    "config": "epu.build_options",
    "custom_op": "epu.custom_ops",
    "cut_onnx": "epu.onnx_util",
    "import_onnx": "epu.relay_passes.import_onnx",
    "last_error": "epu.relay_passes.runtime",
    "partition_for_epu": "epu.relay_passes.partition",
    "placement": "epu.relay_passes.partition",
    "quadric_quantize": "epu.quantize",
    "replace_subgraphs": "epu.custom_match",
    "to_graph": "epu.relay_passes.to_graph",
}

tvm_hook.install()
tvm_names.install()


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module 'epu' has no attribute {name!r}")
    return getattr(import_module(LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *LAZY])
