"""ChimeraJob: one ONNX model compiled for one EPU, run and validated on the ISS."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epu.errors import ConfigError, UserError
from epu.files import write_bytes
from epu.graph import Fixed, Graph, TensorType
from epu.hw_config import HWConfig
from epu.log import get_logger
from epu.metrics import Tolerance
from epu.raw_tensors import Arrays, decode, encode, load_arrays, write_raw
from epu.reports import Peak, Performance, cycle_bars, io_table, module_table, performance_report, totals
from epu.simulator.fixed_point import NUMPY_DTYPE
from epu.simulator.program import Buffer, Program
from epu.simulator.simulation import RunResult, simulate

if TYPE_CHECKING:
    from onnx import ModelProto

    from epu.compiler import CompiledModule
    from epu.validate import Progress
    from epu.validation_result import ValidationResult

Inputs = Mapping[str, NDArray[Any]]

TARGET_LANGS = ("ASM",)
ROUNDINGS = ("exact", "ort")
RUN_FOLDER = "epu_build"
SAMPLE_SEED = 0

log = get_logger("chimera_job")


class ChimeraJob:
    """Compile a quantised ONNX model, look at it, run it, and validate it against ONNX Runtime.

    ``onnx`` is the path of a quantised model, ``trange_file`` its .tranges file (``epu.quadric_quantize`` writes both);
    ``rounding`` is "exact" or "ort", which repeats ONNX Runtime's float32 rounding. ``validate_iss`` makes
    ``compile`` refuse at once a model that ONNX Runtime cannot load; validation itself is always possible.
    ``shapes`` fixes dynamic inputs.
    After ``compile``: ``program``, ``graph``, ``seconds`` per stage, ``gmacs``, and ``print(job)``.

    Raises ConfigError for an argument outside its limits, UserError for a file or a model that cannot be compiled.
    """

    def __init__(
        self,
        onnx: str | os.PathLike[str],
        hw_config: HWConfig | None = None,
        trange_file: str | os.PathLike[str] | None = None,
        target_lang: str = "ASM",
        custom_ops: str | os.PathLike[str] | None = None,
        validate_iss: bool = False,
        rounding: str = "exact",
        shapes: Mapping[str, Sequence[int]] | None = None,
        run_directory: str | os.PathLike[str] | None = None,
    ) -> None:
        _require("target_lang", target_lang, TARGET_LANGS)
        _require("rounding", rounding, ROUNDINGS)
        if custom_ops is not None:
            raise ConfigError(f"ChimeraJob: custom_ops is not supported yet, found {custom_ops!r}. Leave it out.")
        self.onnx_file = os.fspath(onnx)
        self.hw_config = hw_config or HWConfig()
        self.trange_file = trange_file
        self.validate_iss = validate_iss
        self.shapes = shapes
        self.rounding = rounding
        self.module_name = self.hw_config.module_name(Path(self.onnx_file).stem)
        self.run_directory = Path(run_directory or Path(RUN_FOLDER) / self.module_name)
        self.seconds: dict[str, float] = {}
        self.run_result: RunResult | None = None
        self.validation: ValidationResult | None = None
        self._model: ModelProto | None = None
        self._compiled: CompiledModule | None = None

    def compile(self) -> None:
        """Compile the model. Each stage is logged, its time is in ``seconds``."""
        self.seconds = {}
        graph = self._typed_graph()
        from epu.compiler import compile_graph

        compiled = compile_graph(graph, self.hw_config.machine, rounding=self.rounding, name=self.module_name)
        self.seconds.update(compiled.seconds)
        self._compiled = compiled
        self.run_result = self.validation = None
        log.info(f"Compilation of {self.module_name} successful")

    def run(self, inputs: Inputs | str | os.PathLike[str] | None = None) -> Arrays:
        """Run on the ISS and return the outputs as ONNX Runtime would; ``input.bin`` and ``output.bin`` are written.

        ``inputs`` are arrays by name or an .npz file; None draws a normal sample within the calibrated ranges.
        """
        raw = encode(self.program.inputs, self._inputs(inputs))
        self.run_result = simulate(self.program, raw)
        self._write_run(raw, self.run_result.outputs)
        return decode(self.program.outputs, self.run_result.outputs)

    def validate_ort_iss(
        self,
        inputs: Inputs | str | os.PathLike[str] | None = None,
        *,
        rtol: float = 0.1,
        atol: float = -1,
        progress: Progress | None = None,
    ) -> ValidationResult:
        """Compare ONNX Runtime, golden and ISS on every node output: isolated, segment and end to end."""
        from epu.validate import gather
        from epu.validation_result import ValidationResult

        compiled, model = self._require_compiled(), self._loaded_model()
        evidence = gather(compiled, model, self._inputs(inputs), Tolerance(rtol, atol), progress)
        self.run_result = evidence.run
        self._write_run(evidence.raw_inputs, evidence.run.outputs)
        self.validation = ValidationResult(Path(self.onnx_file).name, str(self.hw_config), self.rounding, evidence)
        return self.validation

    @property
    def compiled(self) -> CompiledModule:
        return self._require_compiled()

    @property
    def program(self) -> Program:
        return self._require_compiled().program

    @property
    def graph(self) -> Graph:
        return self._require_compiled().graph

    @property
    def gmacs(self) -> float:
        return float(self._require_compiled().gmacs)

    @property
    def performance(self) -> Performance:
        """Cycles and traffic of one inference; the cycles do not depend on the values."""
        run, macs = self._any_run(), round(self.gmacs * 1e9)
        return Performance(self.hw_config.machine, run.cycles.total, macs, run.ext_read_bytes, run.ext_write_bytes)

    def report(self) -> dict[str, Any]:
        """The form of ``epu compile --json``."""
        run, spans = self._any_run(), self.program.debug.kernels
        return {
            "module": self.module_name,
            "hw": str(self.hw_config),
            "seconds": self.seconds,
            "gmacs": self.gmacs,
            "peak": asdict(self._peak()),
            "host_nodes": self.host_nodes,
            "kernels": [
                {"name": span.name, "nodes": list(span.nodes), "cycles": asdict(cycles)}
                for span, cycles in zip(spans, run.kernels, strict=True)
            ],
            "cycles": asdict(run.cycles),
            "mac_utilization": self.performance.mac_utilization,
        }

    @property
    def host_nodes(self) -> list[dict[str, str]]:
        """Nodes that do not run on the EPU: none, because a ChimeraJob refuses a model that has any."""
        return []

    def save(self, folder: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write ``<module name>.epu`` and its listing ``<module name>.lst``; returns both paths."""
        program, listing = (Path(folder) / f"{self.module_name}{suffix}" for suffix in (".epu", ".lst"))
        data, text = self.program.to_bytes(), self.program.listing()
        write_bytes(program, data)
        write_bytes(listing, text.encode())
        return program, listing

    def post_iss_report(self) -> str:
        """Latency, traffic, utilisation and the cycle bars."""
        cycles = asdict(self._any_run().cycles)
        performance = self.performance
        return "\n".join([performance_report(performance), totals(cycles, performance.seconds), cycle_bars(cycles)])

    def __str__(self) -> str:
        if self._compiled is None:
            return f"ChimeraJob {self.module_name}: not compiled yet"
        table = module_table(self.module_name, self.onnx_file, self.hw_config, self._peak(), self.gmacs)
        parts = [table, io_table(self._io_rows())]
        if self.run_result is not None:
            parts += [self.post_iss_report(), f"Run directory: {self.run_directory}"]
        return "\n".join(parts)

    def _typed_graph(self) -> Graph:
        from epu.front_end import import_model, to_typed_graph
        from epu.onnx_util import load_model
        from epu.ranges import load_ranges

        with self._stage("onnx_ingest"):
            model = self._model = load_model(self.onnx_file, shapes=self.shapes)
            ranges = load_ranges(self.trange_file) if self.trange_file is not None else None
            log.info("Numerical ranges provided" if ranges is not None else "No numerical ranges provided")
            if self.validate_iss:
                _require_ort(model, self.onnx_file)
            module = import_model(model)
        with self._stage("optimize_relay"):
            return to_typed_graph(module, ranges, self.module_name)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        log.info(stage_line(name))
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def _inputs(self, inputs: Inputs | str | os.PathLike[str] | None) -> Inputs:
        if isinstance(inputs, (str, os.PathLike)):
            inputs = load_arrays(inputs)
        if inputs is None:
            return sample_inputs(self.program, self.graph)
        if not isinstance(inputs, Mapping):
            raise UserError(
                f"inputs must be a dict of arrays by name or the path of an .npz file, found {type(inputs).__name__}."
            )
        encode(self.program.inputs, inputs)  # refuses what does not fit before anything runs
        return inputs

    def _write_run(self, raw: Inputs, outputs: Inputs) -> None:
        write_raw(self.run_directory, "input", raw)
        write_raw(self.run_directory, "output", outputs)

    def _any_run(self) -> RunResult:
        """The last run, or one on zeros, for what does not depend on the values."""
        if self.run_result is not None:
            return self.run_result
        return simulate(self.program, encode(self.program.inputs, zeros(self.program)))

    def _peak(self) -> Peak:
        peak = self._require_compiled().peak
        return Peak(peak.ocm_bytes, peak.lrm_bytes, peak.ext_temp_bytes)

    def _io_rows(self) -> Iterator[tuple[str, str, tuple[int, ...], str, float | None]]:
        for name in self.graph.inputs:
            tensor = self.graph.tensor(name)
            yield "Input", name, tensor.shape, type_text(tensor.type), None
        for name in self.graph.outputs:
            tensor = self.graph.tensor(name)
            mse = self.validation.mse(name) if self.validation is not None else None
            yield "Output", name, tensor.shape, type_text(tensor.type), mse

    def _loaded_model(self) -> ModelProto:
        assert self._model is not None
        return self._model

    def _require_compiled(self) -> CompiledModule:
        if self._compiled is None:
            raise UserError(f"ChimeraJob {self.module_name} is not compiled. Call compile() first.")
        return self._compiled


def stage_line(name: str) -> str:
    """The line that opens a stage in the log, always 50 characters."""
    return "START" + name.rjust(45, "=")


def type_text(tensor_type: TensorType) -> str:
    """The type as the in/out table writes it."""
    if isinstance(tensor_type, Fixed):
        return f"tensor[FixedPoint32<{tensor_type.frac}>]"
    return f"tensor[{getattr(tensor_type, 'dtype', 'float32')}]"


def zeros(program: Program) -> Arrays:
    """An all-zero sample."""
    return {each.name: np.zeros(each.shape, _sample_type(each)) for each in program.inputs}


def sample_inputs(program: Program, graph: Graph) -> Arrays:
    """A seeded sample: normal within the calibrated range, a third of it one standard deviation; integers are 0."""
    random = np.random.default_rng(SAMPLE_SEED)
    arrays = zeros(program)
    for name, array in arrays.items():
        if array.dtype == np.float32:
            arrays[name] = _sample(random, array.shape, graph.tensor(name).range)
    return arrays


def _sample_type(buffer: Buffer) -> np.dtype[Any]:
    """What ONNX Runtime takes for the buffer."""
    return np.dtype(np.float32) if buffer.decode.kind == "fx" else NUMPY_DTYPE[buffer.dtype]


def _sample(
    random: np.random.Generator, shape: tuple[int, ...], limits: tuple[float, float] | None
) -> NDArray[np.float32]:
    low, high = limits or (-1.0, 1.0)
    values = (low + high) / 2 + (high - low) / 6 * random.standard_normal(shape)
    return np.clip(values, low, high).astype(np.float32)


def _require(argument: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"ChimeraJob: {argument} must be {' or '.join(map(repr, allowed))}, found {value!r}.")


def _require_ort(model: ModelProto, name: str) -> None:
    from epu.ort_reference import OrtReference

    OrtReference(model, name)
