"""ChimeraJob: one ONNX model compiled for one EPU, run and validated on the ISS."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epu.compile_chain import ChainCompiler
from epu.custom_load import Source, load_custom_ops, source_title
from epu.custom_ops import using
from epu.errors import ConfigError, UserError
from epu.graph import Graph
from epu.hw_config import HWConfig
from epu.job_placement import Placement
from epu.job_tables import io_rows, kernel_rows, peak_of
from epu.log import get_logger
from epu.metrics import Tolerance
from epu.raw_tensors import Arrays, encode, load_arrays, write_raw
from epu.reports import Performance, cycle_bars, io_table, module_table, performance_report, totals
from epu.sample_inputs import sample_of, zeros
from epu.save_chain import save_chain
from epu.simulator.energy import energy_of_program
from epu.simulator.program import Program
from epu.simulator.simulation import RunResult, simulate
from epu.stages import Chain, Compiled
from epu.tensor_facts import TensorFacts, facts_of

if TYPE_CHECKING:
    from onnx import ModelProto
    from pandas import DataFrame

    from epu.notebook_html import MemoryView
    from epu.ranges import Ranges
    from epu.validate import Progress
    from epu.validation_result import ValidationResult

Inputs = Mapping[str, NDArray[Any]]

TARGET_LANGS = ("ASM",)
ROUNDINGS = ("exact", "ort")
RUN_FOLDER = "epu_build"

INGEST = "onnx_ingest"  # the job's own stage; the others are the code generator's

log = get_logger("chimera_job")
codegen_log = get_logger("codegen")


class ChimeraJob:
    """Compile a quantised ONNX model, look at it, run it, and validate it against ONNX Runtime.

    ``onnx`` is the path of a quantised model, ``trange_file`` its .tranges file (``epu.quadric_quantize`` writes both);
    ``rounding`` is "exact" or "ort", which repeats ONNX Runtime's float32 rounding. ``validate_iss`` makes
    ``compile`` refuse at once a model that ONNX Runtime cannot load; validation itself is always possible.
    ``shapes`` fixes dynamic inputs. Nodes that the EPU cannot run, and those that ``exclude`` names, run on the host by
    ONNX Runtime in the same job; ``placement`` tells which and why.
    After ``compile``: ``programs`` (``program`` where there is one), ``graph``, ``chain`` (all stages), ``placement``,
    ``seconds`` per stage of the compiler, ``gmacs``, and ``print(job)``.

    Raises ConfigError for an argument outside its limits, UserError for a file or a model that cannot be compiled.
    """

    def __init__(
        self,
        onnx: str | os.PathLike[str],
        hw_config: HWConfig | None = None,
        trange_file: str | os.PathLike[str] | None = None,
        target_lang: str = "ASM",
        custom_ops: Source | None = None,
        validate_iss: bool = False,
        rounding: str = "exact",
        shapes: Mapping[str, Sequence[int]] | None = None,
        run_directory: str | os.PathLike[str] | None = None,
        exclude: Sequence[str] = (),
    ) -> None:
        _require("target_lang", target_lang, TARGET_LANGS)
        _require("rounding", rounding, ROUNDINGS)
        self.custom_ops = "" if custom_ops is None else source_title(custom_ops)
        self._custom_ops = {} if custom_ops is None else load_custom_ops(custom_ops)
        self.onnx_file = os.fspath(onnx)
        self.hw_config = hw_config or HWConfig()
        self.trange_file = trange_file
        self.validate_iss = validate_iss
        self.shapes = shapes
        self.exclude = exclude
        self.rounding = rounding
        self.module_name = self.hw_config.module_name(Path(self.onnx_file).stem)
        self.run_directory = Path(run_directory or Path(RUN_FOLDER) / self.module_name)
        self.seconds: dict[str, float] = {}
        self.run_result: RunResult | None = None
        self.validation: ValidationResult | None = None
        self.seen: dict[str, TensorFacts] = {}  # of the last run's inputs and outputs
        self._chain: Chain | None = None
        self._placement = Placement(())

    def compile(self) -> None:
        """Compile the model. Each stage is logged, its time is in ``seconds``."""
        self.seconds = {}
        with self._stage(INGEST):
            model, ranges = self._load()
        compiler = ChainCompiler(
            model, ranges, self.hw_config.machine, self.rounding, self.module_name, self.exclude, self._stage
        )
        with using(self._custom_ops):
            self._chain, self._placement = compiler.run()
        self.seconds.update(compiler.seconds)
        self.run_result = self.validation = None
        self.seen = {}
        log.info(f"Compilation of {self.module_name} successful")

    def run(self, inputs: Inputs | str | os.PathLike[str] | None = None) -> Arrays:
        """Run on the ISS and return the outputs as ONNX Runtime would; ``input.bin`` and ``output.bin`` are written.

        ``inputs`` are arrays by name or an .npz file; None draws a normal sample within the calibrated ranges.
        """
        arrays = self._inputs(inputs)
        self.run_result = self.chain.run(arrays)
        self._write_run(self.chain.raw_inputs(arrays), self.run_result.outputs)
        return self.chain.decode(self.run_result.outputs)

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

        tolerance, arrays = Tolerance(rtol, atol), self._inputs(inputs)
        evidence = gather(self.chain, arrays, tolerance, progress, self.module_name, self.rounding)
        evidence = replace(evidence, placement=self.placement.to_list())
        self.run_result = evidence.run
        self.validation = ValidationResult(Path(self.onnx_file).name, str(self.hw_config), self.rounding, evidence)
        self._write_run(evidence.raw_inputs, evidence.run.outputs)
        return self.validation

    @property
    def chain(self) -> Chain:
        """The stages, on the EPU and on the host, in order."""
        if self._chain is None:
            raise UserError(f"ChimeraJob {self.module_name} is not compiled. Call compile() first.")
        return self._chain

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of the EPU stages in order."""
        return tuple(stage.program for stage in self.chain.epu)

    @property
    def compiled(self) -> Compiled:
        """The compiled module where there is one program; UserError where there are several."""
        stages = self.chain.epu
        if len(stages) > 1:
            raise UserError(
                f"ChimeraJob {self.module_name}: program, graph and compiled need a job of one program, found "
                f"{len(stages)}. Take them from job.programs and job.chain.epu."
            )
        return stages[0].compiled

    @property
    def program(self) -> Program:
        return self.compiled.program

    @property
    def graph(self) -> Graph:
        return self.compiled.graph

    @property
    def gmacs(self) -> float:
        return float(sum(stage.compiled.gmacs for stage in self.chain.epu))

    @property
    def placement(self) -> Placement:
        """Where each ONNX node runs, in which stage, and why on the host; ``print`` shows the table."""
        assert self.chain
        return self._placement

    @property
    def is_compiled(self) -> bool:
        return self._chain is not None

    @property
    def memory_map(self) -> MemoryView:
        """The on-chip memory over time, as notebooks show it."""
        from epu.notebook_html import MemoryView

        return MemoryView(self.record())

    def kernels_dataframe(self) -> DataFrame:
        """Cycles, work and bound of every kernel as a pandas data frame."""
        from epu import frames

        return frames.kernels(self)

    def record(self) -> dict[str, Any]:
        """The run record of docs/reports.md, as it stands."""
        from epu.run_record import job_record

        return job_record(self)

    def write_record(self) -> Path:
        """Write the run record into the run directory, where ``epu report`` reads it; returns its path."""
        from epu.run_record import write_record

        return write_record(self.run_directory, self.record())

    @property
    def host_nodes(self) -> list[dict[str, str]]:
        """The nodes that run on the host: node, op, reason, remedy."""
        return [
            {"node": row.node, "op": row.op, "reason": row.reason, "remedy": row.remedy} for row in self.placement.host
        ]

    @property
    def performance(self) -> Performance:
        """Cycles, traffic and energy of one inference; they do not depend on the values."""
        run, macs = self._any_run(), round(self.gmacs * 1e9)
        energy = sum(energy_of_program(program).total for program in self.programs)
        traffic = (run.ext_read_bytes, run.ext_write_bytes)
        return Performance(self.hw_config.machine, run.cycles.total, macs, *traffic, energy)

    def report(self) -> dict[str, Any]:
        """The form of ``epu compile --json``."""
        run = self._any_run()
        return {
            "module": self.module_name,
            "hw": str(self.hw_config),
            "seconds": self.seconds,
            "gmacs": self.gmacs,
            "peak": asdict(peak_of(self.chain)),
            "host_nodes": self.host_nodes,
            "placement": self.placement.to_list(),
            "kernels": kernel_rows(self.chain, run),
            "cycles": asdict(run.cycles),
            "mac_utilization": self.performance.mac_utilization,
        }

    def save(self, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Write ``<module name>.epu`` and its listing ``<module name>.lst``, or where there are several stages
        ``<module name>.<stage>.epu`` and ``.lst`` or ``.onnx`` for each and the manifest ``<module name>.json``; returns the
        paths."""
        return save_chain(self.chain, Path(folder) / self.module_name)

    def post_iss_report(self) -> str:
        """Latency, traffic, utilisation and the cycle bars."""
        cycles = asdict(self._any_run().cycles)
        performance = self.performance
        return "\n".join([performance_report(performance), totals(cycles, performance.seconds), cycle_bars(cycles)])

    def __str__(self) -> str:
        if self._chain is None:
            return f"ChimeraJob {self.module_name}: not compiled yet"
        table = module_table(
            self.module_name, self.onnx_file, self.hw_config, peak_of(self.chain), self.gmacs, self.custom_ops
        )
        parts = [table, io_table(io_rows(self.chain, self.validation))]
        parts += [self.placement.host_table()] if self.placement.host else []
        if self.run_result is not None:
            parts += [self.post_iss_report(), f"Run directory: {self.run_directory}"]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        from epu.notebook_html import job_html

        return job_html(self)

    def _load(self) -> tuple[ModelProto, Ranges | None]:
        from epu.onnx_util import load_model
        from epu.ranges import load_ranges

        model = load_model(self.onnx_file, shapes=self.shapes)
        ranges = load_ranges(self.trange_file) if self.trange_file is not None else None
        log.info("Numerical ranges provided" if ranges is not None else "No numerical ranges provided")
        if self.validate_iss:
            _require_ort(model, self.onnx_file)
        return model, ranges

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        (log if name == INGEST else codegen_log).info(stage_line(name))
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def _inputs(self, inputs: Inputs | str | os.PathLike[str] | None) -> Inputs:
        if isinstance(inputs, (str, os.PathLike)):
            inputs = load_arrays(inputs)
        if inputs is None:
            return sample_of(self.chain)
        if not isinstance(inputs, Mapping):
            raise UserError(
                f"inputs must be a dict of arrays by name or the path of an .npz file, found {type(inputs).__name__}."
            )
        self.chain.raw_inputs(inputs)  # refuses what does not fit before anything runs
        return inputs

    def _write_run(self, raw: Inputs, outputs: Inputs) -> None:
        write_raw(self.run_directory, "input", raw)
        write_raw(self.run_directory, "output", outputs)
        self.seen = facts_of({**raw, **outputs})
        self.write_record()

    def _any_run(self) -> RunResult:
        """The last run, or one on zeros, for what does not depend on the values."""
        if self.run_result is not None:
            return self.run_result
        results = [simulate(program, encode(program.inputs, zeros(program))) for program in self.programs]
        return self.chain.combined(results, dict.fromkeys(self.chain.outputs, np.zeros(0)), 0.0)


def stage_line(name: str) -> str:
    """The line that opens a stage in the log, always 50 characters."""
    return "START" + name.rjust(45, "=")


def _require(argument: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"ChimeraJob: {argument} must be {' or '.join(map(repr, allowed))}, found {value!r}.")


def _require_ort(model: ModelProto, name: str) -> None:
    from epu.ort_reference import OrtReference

    OrtReference(model, name)
