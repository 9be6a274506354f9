"""Kernel → instructions: the largest tiles whose LRM fits. Identical kernels on the same machine are done once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from epu.simulator.elementwise import Alu
from epu.simulator.errors import CapacityError
from epu.simulator.instruction import Instruction
from epu.simulator.machine import Machine
from epu.simulator.operands import Imm, Ocm

from .emit import emit
from .kernel import Kernel
from .kernel_code import KernelCode, LongCode, ParamOcm, ScalarImm
from .places import Shapes
from .read_schedule import read_schedule
from .schedule import schedule

BUDGETS = (64, 48, 32, 24, 16, 8, 4, 2, 1)
_DONE: dict[tuple[Any, ...], KernelCode] = {}
_LONG: dict[tuple[Any, ...], int] = {}  # kernels that have more instructions than this


def compile_kernel(
    kernel: Kernel, machine: Machine, whole: Shapes | None = None, most: int | None = None
) -> KernelCode:
    """Instructions with all array parameters in OCM. Raises CapacityError where no tiling fits the LRM.

    ``whole``: shapes of larger arrays of which parameters are slices that lie in place. ``most``: raises LongCode beyond so
    many instructions.
    """
    key = (kernel.key, machine, tuple(sorted((whole or {}).items())))
    if key in _DONE:
        return _DONE[key]
    if most is not None and _LONG.get(key, 0) >= most:
        raise LongCode(most)
    try:
        _DONE[key] = _fit(kernel, machine, whole or {}, most)
    except LongCode:
        assert most is not None
        _LONG[key] = most
        raise
    return _DONE[key]


def _fit(kernel: Kernel, machine: Machine, whole: Shapes, most: int | None) -> KernelCode:
    problem = None
    for budget in BUDGETS:
        code = read_schedule(schedule(kernel, machine, budget))
        try:
            return emit(code, machine, whole, most)
        except CapacityError as error:
            problem = error
    raise CapacityError(f"kernel {kernel.family}: {problem}") from problem


@dataclass(frozen=True)
class Link:
    """Where a kernel's parameters lie in OCM (by name, "" is its scratch), and the values of its scalars."""

    base: dict[str, int]
    scalars: dict[str, int]

    def link(self, instruction: Instruction) -> Instruction:
        """The instruction with addresses and immediates filled in."""
        changes: dict[str, Any] = {}
        for name, value in vars(instruction).items():
            found = self._resolve(value)
            if found is not value:
                changes[name] = found
        if isinstance(instruction, Alu) and changes.get("d") == Imm(0):
            changes["d"] = None
        return replace(instruction, **changes) if changes else instruction

    def _resolve(self, value: Any) -> Ocm | Imm | Any:
        if isinstance(value, ParamOcm):
            base = self.base[value.param] + value.addr
            return Ocm(base, value.dtype, value.row_strides, value.col_strides, value.strides)
        if isinstance(value, ScalarImm):
            return Imm(self.scalars[value.param])
        return value
