"""What a kernel family delivers: the TE stages as PrimFuncs, and what the scheduler needs to know of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from epu.simulator.machine import Machine

from .tiling import Tiling
from .tvm_api import te


@dataclass(frozen=True)
class Param:
    """One parameter of a kernel's PrimFunc. ``role``: "input", "constant", "output" or "scalar" (int64)."""

    name: str
    role: str
    shape: tuple[int, ...] = ()
    dtype: str = "int64"


@dataclass(frozen=True)
class Kernel:
    """A kernel of some family at fixed shapes and types; ``key`` is its identity for reuse.

    ``axes`` names the axis of each dimension of every stage and array parameter; ``stages`` lists the stages, producers
    first, the main output last; ``reduced`` the reduction axes of a stage; ``padded`` stages live in OCM; ``broadcast``
    says which parameters the Mac's bus reads straight from OCM under a tiling; ``observed`` stages are recorded where they lie;
    ``gathers`` are stages that only move OCM values into LRM; ``dots`` are sums of int8 products, for the MAC units.
    ``function`` makes the PrimFunc of a kernel of moves within OCM, which has no stages to schedule.
    """

    family: str
    key: tuple[Any, ...]
    params: tuple[Param, ...]
    tensors: dict[str, Any]
    axes: dict[str, tuple[str, ...]]
    stages: tuple[str, ...]
    tiling: Callable[[Machine, int], Tiling]
    reduced: dict[str, tuple[str, ...]] = field(default_factory=dict)
    padded: frozenset[str] = frozenset()
    broadcast: Callable[[Tiling], frozenset[str]] = lambda _: frozenset()
    gathers: frozenset[str] = frozenset()
    dots: frozenset[str] = frozenset()
    observed: tuple[str, ...] = ()
    macs: int = 0
    function: Callable[[], Any] | None = None

    def prim_func(self, observe: bool = False) -> Any:
        """The unscheduled PrimFunc; with ``observe`` it also returns the observed stages, in order."""
        if self.function is not None:
            return self.function()
        arguments = [self.tensors[param.name] for param in self.params]
        extra = [self.tensors[name] for name in self.observed] if observe else []
        return te.create_prim_func([*arguments, *extra])

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(param.name for param in self.params if param.role == "output")

    @property
    def arrays(self) -> tuple[Param, ...]:
        return tuple(param for param in self.params if param.role != "scalar")
