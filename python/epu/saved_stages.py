"""Runs a saved job of several stages: programs on the simulator, sub-models by ONNX Runtime. Needs neither onnx nor TVM."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from epu.errors import UserError
from epu.raw_tensors import Arrays, decode_one, encode_one, exact_reals
from epu.simulator.machine import Machine
from epu.simulator.program import Program
from epu.simulator.simulation import simulate
from epu.simulator.timing import CycleCount

MANIFEST = "epu-stages-1"  # the format that ``epu.save_chain`` writes

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class SavedHost:
    """A stage of the host: its sub-model's file."""

    path: Path

    def run(self, values: Arrays) -> Arrays:
        try:
            from epu.ort_session import input_specs, open_session, run_session
        except ModuleNotFoundError as error:
            raise UserError(
                f"'{self.path.name}' runs on the host by ONNX Runtime: {error}. Install onnxruntime."
            ) from error
        session = open_session(os.fspath(self.path), self.path.name)
        feeds = {each.name: np.asarray(_value(values, each.name), each.dtype) for each in input_specs(session)}
        names = [each.name for each in session.get_outputs()]
        return dict(zip(names, map(np.asarray, run_session(session, self.path.name, feeds)), strict=True))


@dataclass(frozen=True)
class SavedStages:
    """The stages of a manifest, in order, and the outputs of the whole model."""

    stages: tuple[Program | SavedHost, ...]
    outputs: tuple[str, ...]

    @classmethod
    def load(cls, manifest: PathLike) -> SavedStages:
        """Raises UserError for what is no manifest, and for a file of it that is missing; ProgramError for a damaged one."""
        path = Path(manifest)
        content = _content(path)
        try:
            rows = [(Path(row["file"]).name, row["where"]) for row in content["stages"]]
            outputs = tuple(content["outputs"])
        except (KeyError, TypeError) as error:
            raise UserError(f"'{path}' lacks a part of a list of stages: {error!r}. Write it anew.") from error
        return cls(tuple(_stage(path.parent / file, where) for file, where in rows), outputs)

    @property
    def programs(self) -> list[Program]:
        return [stage for stage in self.stages if isinstance(stage, Program)]

    @property
    def machine(self) -> Machine:
        return self.programs[0].machine

    def run(self, inputs: Arrays, raw: bool = False) -> tuple[Arrays, CycleCount]:
        """The outputs, as ONNX Runtime returns them or ``raw`` where a program makes them, and the cycles of all programs."""
        values, shown, counts = dict(inputs), dict(inputs), []
        for stage in self.stages:
            if isinstance(stage, SavedHost):
                found = stage.run(values)
                values.update(found)
                shown.update(found)
                continue
            encoded = {each.name: encode_one(each, np.asarray(_value(values, each.name))) for each in stage.inputs}
            result = simulate(stage, encoded)
            counts.append(result.cycles)
            values.update({each.name: exact_reals(each, result.outputs[each.name]) for each in stage.outputs})
            shown.update(
                {
                    e.name: result.outputs[e.name] if raw else decode_one(e, result.outputs[e.name])
                    for e in stage.outputs
                }
            )
        return {name: shown[name] for name in self.outputs}, total_cycles(counts)


def total_cycles(counts: list[CycleCount]) -> CycleCount:
    """The sum of each class."""
    names = [each.name for each in fields(CycleCount)]
    return CycleCount(**{name: sum(getattr(each, name) for each in counts) for name in names})


def _value(values: Arrays, name: str) -> Any:
    if name not in values:
        raise UserError(f"inputs: '{name}' is missing. Give an .npz file with one array per input of the model.")
    return values[name]


def _stage(path: Path, where: str) -> Program | SavedHost:
    if not path.is_file():
        raise UserError(f"'{path}' does not exist, but the manifest beside it lists it. Copy all files of the job.")
    return SavedHost(path) if where == "host" else Program.load(path)


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"'{path}' cannot be read as the stages of a job: {error}. Write it with epu compile."
        ) from error
    if not isinstance(content, dict) or content.get("format") != MANIFEST:
        raise UserError(
            f"'{path}' is no list of stages of format {MANIFEST}. Give the .json that epu compile -o writes."
        )
    return content
