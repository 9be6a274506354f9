"""Writes the stages of a job to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from epu.files import write_bytes
from epu.reports import to_json
from epu.saved_stages import MANIFEST
from epu.stages import Chain, EpuStage, Stage


def save_chain(chain: Chain, stem: Path) -> tuple[Path, ...]:
    """One program: ``<stem>.epu`` and ``.lst``. Several stages: ``<stem>.<stage>.epu`` and ``.lst`` for each of the EPU,
    ``<stem>.<stage>.onnx`` for each of the host, and ``<stem>.json``, which lists them. Returns the paths."""
    if chain.is_single:
        return _save_program(chain.epu[0], stem)
    paths = {stage.index: _save_stage(stage, _with(stem, f".{stage.index}")) for stage in chain.stages}
    manifest = _with(stem, ".json")
    rows = [_row(stage, paths[stage.index][0].name) for stage in chain.stages]
    model = {"inputs": list(chain.inputs), "outputs": list(chain.outputs)}
    write_bytes(manifest, to_json({"format": MANIFEST, **model, "stages": rows}).encode())
    return (manifest, *(path for each in paths.values() for path in each))


def _row(stage: Stage, file: str) -> dict[str, Any]:
    if isinstance(stage, EpuStage):
        ends = ([each.name for each in stage.program.inputs], [each.name for each in stage.program.outputs])
    else:
        ends = ([each.name for each in stage.model.graph.input], [each.name for each in stage.model.graph.output])
    where = "EPU" if isinstance(stage, EpuStage) else "host"
    return {"stage": stage.index, "where": where, "file": file, "inputs": ends[0], "outputs": ends[1]}


def _save_stage(stage: Stage, stem: Path) -> tuple[Path, ...]:
    if isinstance(stage, EpuStage):
        return _save_program(stage, stem)
    from epu.onnx_load import save_model

    save_model(stage.model, _with(stem, ".onnx"))
    return (_with(stem, ".onnx"),)


def _save_program(stage: EpuStage, stem: Path) -> tuple[Path, ...]:
    program, listing = _with(stem, ".epu"), _with(stem, ".lst")
    data, text = stage.program.to_bytes(), stage.program.listing()
    write_bytes(program, data)
    write_bytes(listing, text.encode())
    return program, listing


def _with(stem: Path, suffix: str) -> Path:
    """The stem is a module name, whose own dots are no suffix."""
    return stem.with_name(stem.name + suffix)
