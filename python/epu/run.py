"""Runs a program file on arrays in a file. NumPy and the simulator only."""

from __future__ import annotations

import os
from dataclasses import asdict

from epu.errors import UserError
from epu.raw_tensors import decode, encode, load_arrays, save_arrays
from epu.reports import cycle_bars, totals
from epu.simulator.machine import Machine
from epu.simulator.program import Program
from epu.simulator.simulation import simulate
from epu.simulator.timing import CycleCount

PathLike = str | os.PathLike[str]


def run_program(program: PathLike, inputs: PathLike, output: PathLike, raw: bool = False) -> str:
    """Run ``program`` on the .npz ``inputs``, write the .npz ``output``, and return the cycle report.

    The .json file of a job in several stages is a program too; its host stages need onnxruntime.

    Outputs are float32 where the program holds fixed point, and integers as they are; with ``raw`` all are the
    machine's integers. Raises ProgramError for a corrupt program, UserError for inputs that do not fit.
    """
    if os.fspath(program).endswith(".json"):
        return _run_stages(program, inputs, output, raw)
    module = load_program(program)
    result = simulate(module, encode(module.inputs, load_arrays(inputs)))
    save_arrays(output, result.outputs if raw else decode(module.outputs, result.outputs))
    return _report(output, result.cycles, module.machine)


def _run_stages(manifest: PathLike, inputs: PathLike, output: PathLike, raw: bool) -> str:
    from epu.saved_stages import SavedStages

    stages = SavedStages.load(manifest)
    outputs, cycles = stages.run(load_arrays(inputs), raw)
    save_arrays(output, outputs)
    return _report(output, cycles, stages.machine)


def _report(output: PathLike, count: CycleCount, machine: Machine) -> str:
    cycles = asdict(count)
    seconds = count.total / (machine.clock_ghz * 1e9)
    return "\n".join([f"Wrote {output}", totals(cycles, seconds), cycle_bars(cycles)])


def load_program(path: PathLike) -> Program:
    """The program of a file. Raises UserError where there is none to read, ProgramError where it is damaged."""
    try:
        return Program.load(path)
    except OSError as error:
        raise UserError(f"'{path}' cannot be read: {error.strerror}. Give the path of an .epu file.") from error
