"""What a sweep measures: the machines, and the row that one of them gives."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from epu.errors import ConfigError
from epu.hw_config import HWConfig

Row = dict[str, Any]

OK, REFUSED, FAILED = "ok", "refused", "failed"  # measured; does not fit or is no machine; to be tried again
OBJECTIVES = ("latency_ms", "energy_uj", "ocm_bytes")


@dataclass(frozen=True)
class Point:
    """One machine as options of HWConfig by name, and how the model is compiled for it."""

    options: tuple[tuple[str, Any], ...]
    rounding: str = "exact"

    @property
    def hw_config(self) -> HWConfig:
        """Raises ConfigError where the options are no machine."""
        return HWConfig(**dict(self.options))

    def title(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.options)

    def key(self, model_digest: str) -> str:
        """Names the measurement: another model, machine, rounding or other code of EPU gives another key."""
        told = json.dumps([model_digest, self.options, self.rounding, code_digest()])
        return hashlib.sha256(told.encode()).hexdigest()[:20]


def grid_of(choices: Mapping[str, Sequence[Any]], rounding: str = "exact") -> list[Point]:
    """Every combination of ``choices``: HWConfig option → its values. Raises ConfigError for an empty or doubled choice."""
    for name, values in choices.items():
        if not values or len(set(values)) != len(values):
            raise ConfigError(f"sweep: {name} must be a list of different values, found {list(values)}. Correct it.")
    names = list(choices)
    return [Point(tuple(zip(names, values)), rounding) for values in itertools.product(*choices.values())]


@cache
def code_digest() -> str:
    """Digest of EPU's own Python files: a changed kernel or planner measures anew."""
    total = hashlib.sha256()
    for package in ("epu", "epu.simulator", "epu.tir_schedules", "epu.relay_passes"):
        (folder,) = import_module(package).__path__
        for path in sorted(Path(folder).rglob("*.py")):
            total.update(path.read_bytes())
    return total.hexdigest()


def digest(*parts: bytes | None) -> str:
    """Digest of a model and its ranges."""
    total = hashlib.sha256()
    for part in parts:
        total.update(b"-" if part is None else hashlib.sha256(part).digest())
    return total.hexdigest()


def pareto(rows: Sequence[Row]) -> list[bool]:
    """Per row, whether it was measured and no other is at least as good in all objectives and better in one."""
    values = [tuple(row[name] for name in OBJECTIVES) if row["status"] == OK else None for row in rows]
    return [mine is not None and not any(_dominates(other, mine) for other in values) for mine in values]


def _dominates(other: tuple[float, ...] | None, mine: tuple[float, ...]) -> bool:
    return other is not None and other != mine and all(a <= b for a, b in zip(other, mine))
