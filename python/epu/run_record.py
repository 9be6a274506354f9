"""The run record: all that reports, traces and comparisons need, as one JSON file in a job's run directory."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from fractions import Fraction
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epu.errors import UserError
from epu.files import write_bytes
from epu.job_placement import EPU, PlacedNode
from epu.record_model import node_depths, node_records, tensor_records
from epu.record_stage import shifted, stage_record, total
from epu.reports import Performance, to_json
from epu.simulator.machine import Machine
from epu.stages import Chain, EpuStage
from epu.tensor_facts import TensorFacts

if TYPE_CHECKING:
    from onnx import ModelProto

    from epu.job import ChimeraJob
    from epu.validation_result import ValidationResult

SCHEMA, VERSION = "epu-run-record", 1
FILE = "run.json"
KEYS = (
    "software",
    "model",
    "settings",
    "machine",
    "seconds",
    "totals",
    "validation",
    "rows",
    "nodes",
    "tensors",
    "stages",
)
LIBRARIES = ("epu", "numpy", "scipy", "onnx", "onnxruntime", "hhb-tvm")

Record = dict[str, Any]

_kept: list[tuple[weakref.ref[Chain], list[Record]]] = []  # stages of the chain that was recorded last


def record_of(source: ChimeraJob | Mapping[str, Any] | str | os.PathLike[str]) -> Record:
    """The record of a compiled job, of a run directory, or a record as it is. Raises UserError where there is none."""
    if isinstance(source, Mapping):
        return dict(source)
    if isinstance(source, (str, os.PathLike)):
        return load_record(source)
    return job_record(source)


def job_record(job: ChimeraJob) -> Record:
    """What is known of a compiled job now. Raises UserError if it is not compiled."""
    chain, model = job.chain, job.chain.model
    seen = job.validation.evidence.values if job.validation is not None else job.seen
    stages = _stages(chain)
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "software": software(),
        "model": {"file": Path(job.onnx_file).name, "sha256": file_sha256(job.onnx_file), "graph": model.graph.name},
        "settings": {
            "module": job.module_name,
            "hardware": str(job.hw_config),
            "rounding": job.rounding,
            "tranges": Path(job.trange_file).name if job.trange_file is not None else None,
        },
        "machine": machine_record(job.hw_config.machine),
        "seconds": dict(job.seconds),
        "totals": _totals(job, stages),
        "validation": _validation(job.validation),
        "rows": list(_rows(model, job.validation)),
        "nodes": node_records(model, _placed(job), {stage.index: stage.program for stage in chain.epu}),
        "tensors": list(_tensors(chain, seen)),
        "stages": stages,
    }


def write_record(folder: str | os.PathLike[str], record: Record) -> Path:
    """Write ``run.json`` into a run directory, whole or not at all; returns its path."""
    path = Path(folder) / FILE
    write_bytes(path, to_json(record, indent=None).encode())
    return path


def load_record(path: str | os.PathLike[str]) -> Record:
    """Read the record of a run directory (or the file itself). Raises UserError for anything else, and another version."""
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"'{path}' holds no run record ({FILE}). {_runs_below(Path(path))}") from error
    except (OSError, ValueError) as error:
        raise UserError(f"'{file}' is not a run record: {error}. Run the job again.") from error
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise UserError(f"'{file}' is not a run record: it has no schema '{SCHEMA}'. Run the job again.")
    if record.get("version") != VERSION:
        raise UserError(
            f"'{file}': the record's version must be {VERSION}, found {record.get('version')!r}. Run the job again with this EPU."
        )
    missing = [key for key in KEYS if key not in record]
    if missing:
        raise UserError(f"'{file}' is not a whole run record: it lacks {', '.join(missing)}. Run the job again.")
    return record


def _runs_below(folder: Path) -> str:
    """The remedy: the run directories that are in the folder, else what makes one."""
    found = sorted(each.parent.name for each in folder.glob(f"*/{FILE}"))
    if found:
        return f"Name one of the {len(found)} run directories in it: {', '.join(found[:4])}{', …' if len(found) > 4 else ''}."
    return "Name the run directory of a job: epu validate and ChimeraJob.run write one."


def software() -> dict[str, str | None]:
    """Versions of what shapes a result, None where it is not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in LIBRARIES}}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def file_sha256(path: str | os.PathLike[str]) -> str | None:
    """SHA-256 of a file, None where it cannot be read any more."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


def machine_record(machine: Machine) -> Record:
    """The machine's numbers, and what it can do per cycle."""
    per_cycle = Fraction(machine.clock_ghz) * machine.num_cores
    return {
        **asdict(machine),
        "peak_macs_per_cycle": machine.pes * machine.macs_per_pe,
        "peak_operations_per_cycle": machine.pes,
        "port_bytes_per_cycle": machine.cols * machine.port_bytes,
        "ext_read_bytes_per_cycle": float(Fraction(machine.ext_rd_gbps) / per_cycle),
        "ext_write_bytes_per_cycle": float(Fraction(machine.ext_wr_gbps) / per_cycle),
    }


def _stages(chain: Chain) -> list[Record]:
    """Stages in order, EPU stages one after the other in time; kept, because nothing in them depends on the values."""
    for known, stages in _kept:
        if known() is chain:
            return stages
    now, found = 0, []
    for stage in chain.stages:
        head = {"index": stage.index, "nodes": len(stage.model.graph.node)}
        if not isinstance(stage, EpuStage):
            found.append({**head, "where": "host"})
            continue
        made = shifted(stage_record(stage.compiled), now)  # type: ignore[arg-type]  # compiled by compile_graph
        now += made["cycles"]["total"]
        found.append({**head, "where": EPU, **made})
    _kept[:] = [(weakref.ref(chain), found)]
    return found


def _totals(job: ChimeraJob, stages: list[Record]) -> Record:
    """What one inference costs; none of it depends on the values, so no run is needed."""
    ours = [stage for stage in stages if stage["where"] == EPU]
    cycles, traffic, peaks = total(ours), total(ours, "traffic"), [stage.compiled.peak for stage in job.chain.epu]
    made = Performance(job.hw_config.machine, cycles["total"], round(job.gmacs * 1e9), traffic["in"], traffic["out"])
    return {
        "cycles": cycles,
        "latency_s": made.seconds,
        "per_second": 1 / made.seconds if made.seconds else None,
        "macs": made.macs,
        "mac_utilization": made.mac_utilization,
        "energy": total(ours, "energy"),
        "ext_read_bytes": made.ext_read_bytes,
        "ext_write_bytes": made.ext_write_bytes,
        "peak_ocm_bytes": max((each.ocm_bytes for each in peaks), default=0),
        "peak_lrm_bytes": max((each.lrm_bytes for each in peaks), default=0),
        "temporary_ext_bytes": max((each.ext_temp_bytes for each in peaks), default=0),
    }


def _validation(result: ValidationResult | None) -> Record | None:
    if result is None:
        return None
    whole = result.to_dict()
    return {
        "passed": result.passed,
        "failures": result.failures,
        **{name: whole[name] for name in ("summary", "ort_version", "cpu")},
    }


def _rows(model: ModelProto, result: ValidationResult | None) -> Iterator[Record]:
    """The rows of a validation with the node, op, tensor and depth that they are about."""
    if result is None:
        return
    depths = dict(_depth_by_tensor(model))
    ops = {name: node.op_type for node in model.graph.node for name in node.output}
    for each in result.evidence.comparisons:
        output = each.output
        yield {**each.row, **_about(output.node, output.op, output.tensor, depths)}
    for row in result.evidence.output_rows:
        yield {**row, **_about("", ops.get(row["Name"], ""), row["Name"], depths)}


def _about(node: str, op: str, tensor: str, depths: Mapping[str, int]) -> Record:
    return {"node": node, "op": op, "tensor": tensor, "depth": depths.get(tensor, 0)}


def _depth_by_tensor(model: ModelProto) -> Iterator[tuple[str, int]]:
    for node, depth in zip(model.graph.node, node_depths(model), strict=True):
        for name in node.output:
            yield name, depth


def _placed(job: ChimeraJob) -> list[PlacedNode]:
    """The job's placement; for a chain made by hand all of it is where its stage is."""
    if len(job.placement):
        return list(job.placement)
    nodes = job.chain.model.graph.node
    return [PlacedNode(node.name or f"{node.op_type}_{node.output[0]}", node.op_type, EPU, 0) for node in nodes]


def _tensors(chain: Chain, seen: Mapping[str, TensorFacts]) -> Iterator[Record]:
    known: set[str] = set()
    for stage in chain.epu:
        for record in tensor_records(stage.index, stage.compiled.graph, stage.program, seen):
            if record["name"] not in known:
                known.add(record["name"])
                yield record
