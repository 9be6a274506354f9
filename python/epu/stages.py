"""The stages of a job: programs of the EPU and sub-models that ONNX Runtime runs on the host, one after the other.

Between stages a tensor is what ONNX Runtime would hold, except that fixed point from the EPU keeps its bits (float64).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from epu.errors import UserError
from epu.graph import Graph
from epu.raw_tensors import Arrays, check_names, decode_one, encode_one, exact_reals, wrong_shape
from epu.saved_stages import total_cycles
from epu.simulator.program import Buffer, Program
from epu.simulator.simulation import RunResult, simulate

if TYPE_CHECKING:
    from onnx import ModelProto

    from epu.ort_reference import OrtReference
    from epu.ort_session import InputSpec

Tensors = Mapping[str, NDArray[Any]]


class Compiled(Protocol):
    """What a stage needs of a compiled module (``epu.compiler.CompiledModule``)."""

    @property
    def program(self) -> Program: ...

    @property
    def graph(self) -> Graph: ...

    @property
    def peak(self) -> Any:
        """``ocm_bytes``, ``lrm_bytes`` and ``ext_temp_bytes``."""
        ...

    @property
    def gmacs(self) -> float: ...

    def golden(self, inputs: Tensors, force: Tensors | None = None) -> Tensors:
        """See ``epu.observed.Compiled``."""
        ...


@dataclass(frozen=True)
class EpuStage:
    """One program, and the ONNX sub-model it was compiled from."""

    index: int
    model: ModelProto
    compiled: Compiled

    @property
    def program(self) -> Program:
        return self.compiled.program

    def encode(self, values: Tensors) -> Arrays:
        """The program's inputs in raw integers."""
        return {each.name: encode_one(each, np.asarray(values[each.name])) for each in self.program.inputs}

    def run(self, raw: Tensors, listeners: Sequence[object] = ()) -> RunResult:
        return simulate(self.program, dict(raw), listeners=tuple(listeners))

    def decode(self, raw: Tensors) -> Arrays:
        """What later stages read of the program's outputs: fixed point in float64, integers as they are."""
        return {each.name: exact_reals(each, raw[each.name]) for each in self.program.outputs}


@dataclass(frozen=True)
class HostStage:
    """One ONNX sub-model that ONNX Runtime runs: optimisations off, one thread."""

    index: int
    model: ModelProto

    @cached_property
    def reference(self) -> OrtReference:
        """The sub-model with every node output visible."""
        from epu.ort_reference import OrtReference

        return OrtReference(self.model, f"host stage {self.index}")

    @cached_property
    def session(self) -> Any:
        from epu.ort_reference import plain_session

        return plain_session(self.model)

    def run(self, values: Tensors) -> Arrays:
        """The outputs by name."""
        from epu.ort_session import run_session

        names = [each.name for each in self.model.graph.output]
        return dict(zip(names, map(np.asarray, run_session(self.session, self.title, self.feeds(values))), strict=True))

    def observe(self, values: Tensors) -> Arrays:
        """Every node output by name."""
        return self.reference.run(self.feeds(values))

    def feeds(self, values: Tensors) -> Arrays:
        return {each.name: np.asarray(values[each.name], each.dtype) for each in self.specs}

    @cached_property
    def specs(self) -> tuple[InputSpec, ...]:
        from epu.ort_session import input_specs

        return input_specs(self.session)

    @property
    def title(self) -> str:
        return f"host stage {self.index}"


Stage = EpuStage | HostStage


@dataclass(frozen=True)
class Chain:
    """The stages of one model in order; ``model`` is the whole."""

    model: ModelProto
    stages: tuple[Stage, ...]

    @classmethod
    def of(cls, model: ModelProto, compiled: Compiled) -> Chain:
        """A model that runs wholly on the EPU."""
        return cls(model, (EpuStage(0, model, compiled),))

    @property
    def epu(self) -> list[EpuStage]:
        return [stage for stage in self.stages if isinstance(stage, EpuStage)]

    @property
    def host(self) -> list[HostStage]:
        return [stage for stage in self.stages if isinstance(stage, HostStage)]

    @property
    def is_single(self) -> bool:
        """One program is all there is."""
        return len(self.stages) == 1

    @cached_property
    def inputs(self) -> dict[str, Buffer | InputSpec]:
        """Inputs of the model by name: the buffer of the program that reads it, or what the host takes."""
        if self.is_single:
            return {each.name: each for each in self.epu[0].program.inputs}
        from epu.ort_reference import declared_inputs

        buffers = {each.name: each for stage in reversed(self.epu) for each in stage.program.inputs}
        return {each.name: buffers.get(each.name, each) for each in declared_inputs(self.model)}

    @cached_property
    def outputs(self) -> dict[str, Buffer | None]:
        """Outputs of the model by name: the buffer of the program that makes it, None where the host does."""
        if self.is_single:
            return {each.name: each for each in self.epu[0].program.outputs}
        buffers = {each.name: each for stage in self.epu for each in stage.program.outputs}
        return {each.name: buffers.get(each.name) for each in self.model.graph.output}

    def raw_inputs(self, inputs: Tensors) -> Arrays:
        """The inputs as the stages take them. Raises UserError for what does not fit."""
        check_names(self.inputs, inputs)
        return {name: _raw(place, np.asarray(inputs[name])) for name, place in self.inputs.items()}

    def run(self, inputs: Tensors) -> RunResult:
        """Run every stage; the outputs are raw integers where a program makes them."""
        self.raw_inputs(inputs)
        values, raw, results = dict(inputs), Arrays(), []
        start = time.perf_counter()
        for stage in self.stages:
            if isinstance(stage, HostStage):
                values.update(stage.run(values))
                continue
            results.append(stage.run(stage.encode(values)))
            raw.update(results[-1].outputs)
            values.update(stage.decode(results[-1].outputs))
        return self.combined(results, {**values, **raw}, time.perf_counter() - start)

    def combined(self, results: Sequence[RunResult], values: Tensors, seconds: float) -> RunResult:
        """Cycles and traffic summed, peaks the largest, over the runs of the EPU stages."""
        if self.is_single:
            return results[0]
        return replace(
            results[0],
            outputs={name: values[name] for name in self.outputs},
            cycles=total_cycles([each.cycles for each in results]),
            kernels=tuple(cycles for each in results for cycles in each.kernels),
            ext_read_bytes=sum(each.ext_read_bytes for each in results),
            ext_write_bytes=sum(each.ext_write_bytes for each in results),
            peak_ocm=max(each.peak_ocm for each in results),
            peak_lrm=max(each.peak_lrm for each in results),
            seconds=seconds,
        )

    def decode(self, outputs: Tensors) -> Arrays:
        """The outputs of a run as ONNX Runtime returns them."""
        return {
            name: outputs[name] if buffer is None else decode_one(buffer, outputs[name])
            for name, buffer in self.outputs.items()
        }


def _raw(place: Buffer | InputSpec, array: NDArray[Any]) -> NDArray[Any]:
    return encode_one(place, array) if isinstance(place, Buffer) else _typed(place, array)


def _typed(spec: InputSpec, array: NDArray[Any]) -> NDArray[Any]:
    """An input of the host in its declared type; whole numbers pass, fractions for integers do not."""
    if array.shape != spec.shape:
        raise wrong_shape(spec.name, spec.shape, array.shape)
    if array.dtype.kind not in "biuf":
        raise UserError(f"inputs: '{spec.name}' must hold numbers, found {array.dtype}.")
    typed = array.astype(spec.dtype)
    if spec.dtype.kind != "f" and not np.array_equal(typed, array):
        raise UserError(f"inputs: '{spec.name}' must hold {spec.dtype}, found other values in {array.dtype}.")
    return typed
