"""The one door through which the kernels reach TVM (0.11 to 0.19 have the same API here)."""

from __future__ import annotations

import platform

import tvm
from tvm import arith, script, te, tir
from tvm.script.parser import tir as dialect

__all__ = ["HOST_TARGET", "arith", "dialect", "script", "te", "tir", "tvm"]


def _host_target() -> dict[str, str]:
    """LLVM for this machine; hhb-tvm's plain "llvm" means RISC-V."""
    return {"kind": "llvm", "mtriple": f"{platform.machine()}-linux-gnu"}


HOST_TARGET = _host_target()
