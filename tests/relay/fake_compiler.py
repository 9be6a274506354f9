"""Stand-in for compiler and simulator: the program is the typed graph, run with the operators' NumPy references."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from epu.graph import Fixed, Float, Graph, Integer, Quantized, Tensor
from epu.operators import OPERATORS
from epu.relay_passes import runtime
from epu.simulator.program import Buffer, Decode

FRAC = 16
RAW = {"int8": "i8", "uint8": "u8", "int32": "i32", "int64": "i64"}


@dataclass
class FakeProgram:
    """A graph that looks like a program."""

    graph: Graph
    rounding: str
    machine: Any
    inputs: tuple[Buffer, ...] = field(default=())
    outputs: tuple[Buffer, ...] = field(default=())

    def to_bytes(self) -> bytes:
        return pickle.dumps(self)


@dataclass
class FakeCompiler:
    """What was compiled and run, and an error to raise on the next run."""

    graphs: list[Graph] = field(default_factory=list)
    programs: list[FakeProgram] = field(default_factory=list)
    runs: int = 0
    fault: Exception | None = None

    def compile_graph(self, graph: Graph, machine: Any, *, rounding: str = "exact", name: str = "") -> Any:
        for tensor in graph.tensors.values():
            _fix(tensor)
        self.graphs.append(graph)
        buffers = [tuple(_buffer(graph.tensors[n]) for n in names) for names in (graph.inputs, graph.outputs)]
        self.programs.append(FakeProgram(graph, rounding, machine, *buffers))
        return SimpleNamespace(program=self.programs[-1])

    def simulate(self, program: FakeProgram, inputs: dict[str, NDArray[Any]], **_: Any) -> Any:
        self.runs += 1
        if self.fault is not None:
            raise self.fault
        values = {name: t.data for name, t in program.graph.tensors.items() if t.data is not None} | inputs
        for node in program.graph.nodes:
            reference = OPERATORS[node.op].reference
            values.update(zip(node.outputs, reference(node, program.graph, values, program.rounding)))
        return SimpleNamespace(outputs={each.name: values[each.name] for each in program.outputs})


def _fix(tensor: Tensor) -> None:
    if isinstance(tensor.type, Float):
        tensor.type = Fixed(FRAC)
        if tensor.data is not None:
            tensor.data = np.rint(np.ldexp(tensor.data.astype(np.float64), FRAC)).astype(np.int32)


def _buffer(tensor: Tensor) -> Buffer:
    kind = tensor.type
    if isinstance(kind, Quantized):
        decode = Decode("q", scale=kind.scale, zero_point=kind.zero_point)
        return Buffer(tensor.name, "ext", 0, tensor.shape, RAW[kind.dtype], decode)
    if isinstance(kind, Fixed):
        return Buffer(tensor.name, "ext", 0, tensor.shape, "i32", Decode("fx", frac=kind.frac))
    assert isinstance(kind, Integer)
    return Buffer(tensor.name, "ext", 0, tensor.shape, RAW[kind.dtype])


def install(monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
    """Put the stand-in where codegen and runtime look for compiler and simulator."""
    fake = FakeCompiler()
    for name, attribute in (("epu.compiler", "compile_graph"), ("epu.simulator.simulate", "simulate")):
        module = ModuleType(name)
        setattr(module, attribute, getattr(fake, attribute))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(runtime, "Program", SimpleNamespace(from_bytes=pickle.loads))
    return fake
