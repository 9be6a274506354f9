"""Who holds which bytes of on-chip memory and for how long: kept beside the program for reports, never read by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from epu.first_fit import FirstFit, Key, align

if TYPE_CHECKING:
    from epu.tir_schedules.kernel_code import LrmHolding


@dataclass(frozen=True)
class Holding:
    """Bytes [addr, addr + size) of OCM from the start of kernel ``first`` to the start of kernel ``last`` (their numbers).

    ``what``: the planner's name for the tenant, ``kernel``: the kernel it is for.
    """

    what: Any
    addr: int
    size: int
    first: int
    last: int
    kernel: int


class Ledger(FirstFit):
    """A FirstFit that writes down every tenant; ``now`` is the kernel that is being planned."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.now = 0
        self.holdings: list[Holding] = []
        self._open: dict[int, int] = {}

    def take(self, sizes: Mapping[Key, int], kernel: int | None = None) -> dict[Key, int] | None:
        """As FirstFit; the tenants are for ``kernel``, by default the one that is being planned."""
        found = super().take(sizes)
        for key, address in (found or {}).items():
            self._open[address] = len(self.holdings)
            owner = self.now if kernel is None else kernel
            self.holdings.append(Holding(key, address, align(sizes[key]), self.now, self.now, owner))
        return found

    def give(self, start: int, size: int, used_now: bool = False) -> None:
        """As FirstFit; ``used_now``: the tenant stayed through the kernel that is being planned."""
        super().give(start, size)
        index = self._open.pop(start)
        self.holdings[index] = replace(self.holdings[index], last=self.now + used_now)


@dataclass(frozen=True)
class MemoryMap:
    """OCM tenants in the order of their arrival; by kernel: the highest LRM byte and the LRM tenants of its first part."""

    ocm: tuple[Holding, ...] = ()
    lrm_peak: tuple[int, ...] = ()
    lrm: tuple[tuple[LrmHolding, ...], ...] = ()
