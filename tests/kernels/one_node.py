"""One typed node with its inputs, and the three answers that must be the same bytes: simulator, golden, reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.compiler import CompiledModule, compile_graph
from epu.errors import CapacityError
from epu.fixed_formats import OP, TRANGES
from epu.graph import Float, Graph, Node, Quantized, Tensor, TensorType
from epu.reference import run_reference
from epu.simulator import Machine, TapRecorder, simulate
from epu.simulator.simulation import RunResult

Array = NDArray[Any]
Shape = Sequence[int]

FILLS = ("random", "lowest", "highest", "zero point")


def machine(product: str = "QC-N", **overrides: Any) -> Machine:
    return Machine.for_product(product, **overrides)


MACHINES = {
    "QC-N": machine(),
    "QC-N, 16 MACs": machine(macs_per_pe=16),
    "QC-P": machine("QC-P"),
    "QC-U": machine("QC-U"),
    "QC-N, OCM 4 kB": machine(ocm_bytes=4 << 10),
    "QC-P, OCM 2 kB": machine("QC-P", ocm_bytes=2 << 10),
    "QC-P, 16 MACs, LRM 2 kB": machine("QC-P", macs_per_pe=16, lrm_bytes=2 << 10),
}


@dataclass
class Case:
    """A graph of one node ``n`` that computes ``y``; ``inputs`` holds the raw values of its variable operands."""

    seed: int
    fill: str = "random"
    tensors: dict[str, Tensor] = field(default_factory=dict)
    inputs: dict[str, Array] = field(default_factory=dict)
    node: Node = field(default_factory=lambda: Node("n", "", [], ["y"]))

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def scale(self, size: int | None = None) -> Any:
        return np.exp(self.rng.uniform(-6, 0, size)).astype(np.float32)

    def raw(self, shape: Shape, dtype: str, fill: str, zero: int = 0) -> Array:
        info = np.iinfo(dtype)
        if fill == "random":
            return self.rng.integers(info.min, info.max, tuple(shape), np.int64, endpoint=True).astype(dtype)
        value = {"lowest": info.min, "highest": info.max, "zero point": zero}[fill]
        return np.full(tuple(shape), value, dtype)

    def quantized(
        self,
        name: str,
        shape: Shape,
        dtype: str = "int8",
        zero: int = 0,
        constant: bool = False,
        axis: int | None = None,
    ) -> Quantized:
        """An int8 or uint8 operand; with ``axis`` one scale per slice."""
        count = 1 if axis is None else shape[axis]
        kind = Quantized(dtype, tuple(float(s) for s in np.atleast_1d(self.scale(count))), (zero,) * count, axis)
        raw = self.raw(shape, dtype, "random" if constant and self.fill == "zero point" else self.fill, zero)
        self.add(name, shape, kind, raw, constant)
        return kind

    def real(self, name: str, shape: Shape, size: float, constant: bool = False) -> Float:
        """A float operand of magnitudes up to ``size``, as raw int32 of any value; a constant as float32."""
        if constant:
            data = self.rng.uniform(-size, size, tuple(shape)).astype(np.float32)
            self.add(name, shape, Float(), data, True)
        else:
            self.add(name, shape, Float(), self.raw(shape, "int32", self.fill), False)
            self.tensors[name].range, self.tensors[name].range_source = (-size, size), TRANGES
        return Float()

    def add(self, name: str, shape: Shape, kind: TensorType, data: Array, constant: bool) -> None:
        self.tensors[name] = Tensor(name, tuple(shape), kind, data if constant else None)
        self.node.inputs.append(name)
        if not constant:
            self.inputs[name] = data

    def bias(self, count: int, largest: int = 1 << 14) -> None:
        self.add(
            "bias",
            (count,),
            Quantized("int32", (1.0,), (0,)),
            self.rng.integers(-largest, largest, count, np.int32),
            True,
        )

    def result(self, shape: Shape, kind: TensorType | None = None, size: float | None = None) -> Tensor:
        """The output: quantized, or float with a calibrated or an implied range."""
        self.tensors["y"] = Tensor("y", tuple(int(each) for each in shape), kind or Float())
        if size is not None:
            self.tensors["y"].range, self.tensors["y"].range_source = (-size, size), OP
        return self.tensors["y"]

    def graph(self, op: str, **attrs: Any) -> Graph:
        self.node.op, self.node.attrs = op, attrs
        return Graph("one", [self.node], self.tensors, list(self.inputs), ["y"])


@dataclass
class Answers:
    """A compiled module and all that a run shows."""

    module: CompiledModule
    result: RunResult
    observed: dict[str, Array]


def run(module: CompiledModule, inputs: dict[str, Array], engine: str = "fast") -> Answers:
    recorder = TapRecorder(module.program)
    result = simulate(module.program, inputs, engine=engine, listeners=(recorder,))
    return Answers(module, result, recorder.tensors)


def observable(module: CompiledModule) -> set[str]:
    """Tensors that a run must show: what kernels write, what taps see, what tables derive."""
    return {
        name
        for kernel in module.kernels
        for name in (*kernel.outputs.values(), *kernel.observed.values(), *kernel.derived)
    }


def assert_same_answers(
    graph: Graph, inputs: dict[str, Array], on: Sequence[Machine], rounding: str = "exact"
) -> list[Answers]:
    """Compile for each machine; every observable tensor is the same in simulator, golden kernel and reference.

    A machine whose memories are too small for the node is left out; the refusal names the node.
    """
    answers = []
    for machine in on:
        module = compile_where_it_fits(graph, machine, rounding)
        if module is None:
            continue
        found = run(module, inputs)
        golden, reference = module.golden(inputs), run_reference(module.graph, inputs, rounding)
        assert observable(module) <= set(found.observed)
        for name in sorted(observable(module)):
            assert_same(f"golden {name}", golden[name], reference[name])
            assert_same(f"simulator {name} on {machine}", found.observed[name], golden[name])
        for name, values in found.result.outputs.items():
            assert_same(f"output {name}", values, golden[name])
        answers.append(found)
    return answers


def compile_where_it_fits(graph: Graph, machine: Machine, rounding: str) -> CompiledModule | None:
    try:
        return compile_graph(graph, machine, rounding=rounding)
    except CapacityError as error:
        problem = str(error)
    default = Machine.for_product(machine.product)
    assert machine.ocm_bytes < default.ocm_bytes or machine.lrm_bytes < default.lrm_bytes, problem
    assert "ONNX node 'n' " in problem
    return None


def assert_same(what: str, found: Array, expected: Array) -> None:
    assert found.shape == expected.shape, what
    different = np.flatnonzero(np.ravel(found.astype(np.int64) != expected.astype(np.int64)))
    if different.size:
        at = int(different[0])
        raise AssertionError(
            f"{what}: {different.size} of {found.size} differ, at {at} {np.ravel(found)[at]} for {np.ravel(expected)[at]}"
        )
