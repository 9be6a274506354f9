"""For which machine and with which rounding and exclusions ``relay.build(..., target="epu")`` compiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field

from epu.custom_load import Source, load_custom_ops
from epu.custom_ops import using
from epu.hw_config import HWConfig
from epu.simulator.errors import ConfigError
from epu.simulator.machine import Machine

ROUNDINGS = ("exact", "ort")


def _default_machine() -> Machine:
    return HWConfig().machine


@dataclass(frozen=True)
class BuildOptions:
    """Machine, rounding, and nodes to leave on the host."""

    machine: Machine = field(default_factory=_default_machine)
    rounding: str = "exact"
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rounding not in ROUNDINGS:
            raise ConfigError(f"rounding must be one of {', '.join(ROUNDINGS)}; found {self.rounding!r}.")


_current: ContextVar[BuildOptions | None] = ContextVar("epu_build_options", default=None)


def current() -> BuildOptions:
    """Options of the innermost ``config``, else QC-U with exact rounding."""
    return _current.get() or BuildOptions()


def use(hw_config: HWConfig, rounding: str, exclude: Iterable[str]) -> BuildOptions:
    """Build with these options from now on, in a process that builds one model (tvmc)."""
    _current.set(BuildOptions(hw_config.machine, rounding, tuple(exclude)))
    return current()


@contextmanager
def config(
    hw_config: HWConfig | Machine | None = None,
    *,
    rounding: str = "exact",
    exclude: Iterable[str] = (),
    custom_ops: Source | None = None,
) -> Iterator[BuildOptions]:
    """Build for this hardware within the block: ``with epu.config(HWConfig(product="QC-N")): relay.build(...)``.

    ``custom_ops``: the custom operators of what is imported and built within (docs/custom_ops.md).
    """
    registered = nullcontext() if custom_ops is None else using(load_custom_ops(custom_ops))
    machine = hw_config.machine if isinstance(hw_config, HWConfig) else hw_config
    token = _current.set(BuildOptions(machine or _default_machine(), rounding, tuple(exclude)))
    try:
        with registered:
            yield current()
    finally:
        _current.reset(token)
