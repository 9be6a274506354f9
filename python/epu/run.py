"""Runs a program file on arrays in a file. NumPy and the simulator only."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from epu.errors import UserError
from epu.raw_tensors import (
    Arrays,
    decode,
    encode,
    load_arrays,
    read_raw,
    require_place,
    save_arrays,
    write_raw,
    write_raw_file,
)
from epu.reports import cycle_bars, totals
from epu.simulator.machine import Machine
from epu.simulator.program import Program
from epu.simulator.simulation import simulate
from epu.simulator.timing import CycleCount

PathLike = str | os.PathLike[str]


def run_program(program: PathLike, inputs: PathLike, output: PathLike, raw: bool = False) -> str:
    """Run ``program`` on the .npz ``inputs``, write the .npz ``output``, and return the cycle report.

    The .json file of a job in several stages is a program too; its host stages need onnxruntime. Of one program, ``inputs`` and
    ``output`` may also be raw integers of the machine: the .bin file of a single tensor, or a folder as in a run directory.

    Outputs are float32 where the program holds fixed point, and integers as they are; with ``raw`` all are the
    machine's integers. Raises ProgramError for a corrupt program, UserError for inputs that do not fit.
    """
    _require_form(output)
    if os.fspath(program).endswith(".json"):
        return _run_stages(program, inputs, output, raw)
    module = load_program(program)
    if _is_raw(output):
        require_place(Path(output), module.outputs)
    result = simulate(module, _raw_inputs(module, inputs))
    if _is_raw(output):
        _write_raw(Path(output), result.outputs)
    else:
        save_arrays(output, result.outputs if raw else decode(module.outputs, result.outputs))
    return _report(output, result.cycles, module.machine)


def _is_raw(path: PathLike) -> bool:
    return os.fspath(path).endswith(".bin") or os.path.isdir(path)


def _require_form(output: PathLike) -> None:
    """A name without ending would become an .npz file, where a folder of raw tensors may have been meant."""
    if not _is_raw(output) and not os.fspath(output).endswith(".npz"):
        raise UserError(f"'{output}' must be an .npz file, a .bin file or a folder that is there. Add an ending.")


def _raw_inputs(module: Program, inputs: PathLike) -> Arrays:
    if _is_raw(inputs):
        return read_raw(Path(inputs), "input", module.inputs)
    return encode(module.inputs, load_arrays(inputs))


def _write_raw(output: Path, outputs: Arrays) -> None:
    if output.is_dir():
        write_raw(output, "output", outputs)
    else:
        write_raw_file(output, next(iter(outputs.values())))


def _run_stages(manifest: PathLike, inputs: PathLike, output: PathLike, raw: bool) -> str:
    from epu.saved_stages import SavedStages

    for path in (inputs, output):
        if _is_raw(path):
            raise UserError(f"'{path}': a job of several stages reads and writes reals. Give an .npz file.")
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
