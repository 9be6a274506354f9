"""TVM without Relay: the targets. A process that only loads and runs an exported library needs no more than this."""

from __future__ import annotations

import platform
from typing import Any

import tvm
from tvm.target.tag import register_tag

EPU_KEY = "epu"  # `Target("epu").tag` is empty, so a target is recognised by this key


def _host() -> dict[str, Any]:
    """hhb-tvm's plain "llvm" means RISC-V; name the machine we are on where the default is another."""
    machine = platform.machine()
    if tvm.target.codegen.llvm_get_system_triple().startswith(machine):
        return {"kind": "llvm"}
    return {"kind": "llvm", "mtriple": f"{machine}-linux-gnu"}


HOST = _host()  # target of the code that surrounds the EPU


def host_target() -> Any:
    """Target of host code, with itself as host."""
    return tvm.target.Target(HOST, HOST)


def is_epu(target: Any) -> bool:
    """``target`` came from the tag "epu"."""
    return EPU_KEY in list(target.keys)


def register_targets() -> None:
    """Make ``"epu"`` a target, and ``"llvm"`` the machine we are on."""
    register_tag("epu", {**HOST, "keys": [EPU_KEY, "cpu"], "device": EPU_KEY}, True)
    if "mtriple" in HOST:
        register_tag("llvm", HOST, True)


register_targets()
