"""Watches what relay.build compiles and what its module runs; the compiler and the simulator are the real ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

import epu.compiler
import epu.simulator
from epu.graph import Graph
from epu.simulator.machine import Machine


@dataclass
class Spy:
    """Graphs and options compiled, number of runs, and an error to raise on the next run."""

    graphs: list[Graph] = field(default_factory=list)
    options: list[tuple[str, str]] = field(default_factory=list)  # (product, rounding)
    runs: int = 0
    fault: Exception | None = None


def install(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """Put the spy before compiler and simulator."""
    spy = Spy()
    compile_graph, simulate = epu.compiler.compile_graph, epu.simulator.simulate

    def compiles(graph: Graph, machine: Machine, *, rounding: str, name: str) -> Any:
        spy.graphs.append(graph)
        spy.options.append((machine.product, rounding))
        return compile_graph(graph, machine, rounding=rounding, name=name)

    def simulates(*args: Any, **kwargs: Any) -> Any:
        spy.runs += 1
        if spy.fault is not None:
            raise spy.fault
        return simulate(*args, **kwargs)

    monkeypatch.setattr(epu.compiler, "compile_graph", compiles)
    monkeypatch.setattr(epu.simulator, "simulate", simulates)
    return spy
