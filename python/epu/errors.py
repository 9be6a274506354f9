"""The exceptions of EPU, one small tree; it lives with the simulator, the lowest part."""

from __future__ import annotations

from epu.simulator.errors import (
    CapacityError,
    ConfigError,
    EpuError,
    MachineFault,
    ProgramError,
    UnsupportedNode,
    UserError,
)

__all__ = [
    "CapacityError",
    "ConfigError",
    "EpuError",
    "MachineFault",
    "ProgramError",
    "UnsupportedNode",
    "UserError",
]
