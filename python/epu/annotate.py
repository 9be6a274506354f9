"""A run's numbers on the model's nodes: an ONNX file whose nodes carry them as metadata, and node data of Model Explorer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epu.errors import UserError
from epu.metrics import ISOLATED

if TYPE_CHECKING:
    from onnx import ModelProto

Record = Mapping[str, Any]
PREFIX = "epu."

METRICS = {
    "cycles": "cycles of the node's kernel, shared by the nodes that it computes",
    "psnr": "isolated PSNR in dB; nodes without error are left out",
    "mismatches": "isolated elements that differ from ONNX Runtime, percent",
    "lsb": "isolated largest error in LSB",
}
GRADIENT: list[dict[str, Any]] = [
    {"stop": 0, "bgColor": "#ffffff"},
    {"stop": 0.5, "bgColor": "#fdd49e"},
    {"stop": 1, "bgColor": "#e34a33"},
]
DESCENDING = ("psnr",)  # small is bad


def annotated(model: ModelProto, record: Record) -> ModelProto:
    """A copy of the model whose nodes carry ``metadata_props`` (``epu.…``), and as text where there is no ``doc_string``.

    Nodes are known by their outputs, so it does not matter that the compiler's loader renames and rewrites some.
    """
    from onnx import ModelProto

    copy = ModelProto()
    copy.CopyFrom(model)
    metrics = node_metrics(record)
    for node in copy.graph.node:
        about = next((metrics[name] for name in node.output if name in metrics), {})
        for name, value in about.items():
            entry = node.metadata_props.add()
            entry.key, entry.value = PREFIX + name, value
        node.doc_string = node.doc_string or "\n".join(f"{name}: {value}" for name, value in about.items())
    return copy


def node_metrics(record: Record) -> dict[str, dict[str, str]]:
    """What is known of the node that makes a tensor, as text, by tensor."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in record["rows"]:
        rows.setdefault(row["node"], []).append(row)
    found = {}
    for node in record["nodes"]:
        about = dict(_about(node, record, rows.get(node["name"], [])))
        found.update(dict.fromkeys(node["outputs"], about))
    return found


def _about(node: Mapping[str, Any], record: Record, rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    found = [("where", node["where"]), ("depth", str(node["depth"]))]
    found += [(name, node[name]) for name in ("reason", "remedy") if node[name]]
    kernel = _kernel(node, record)
    if kernel is not None:
        counts = kernel["cycles"]
        found += [("kernel", kernel["name"]), ("cycles", str(counts["total"])), ("bound", kernel["bound"])]
        found += [(f"cycles.{name}", str(count)) for name, count in counts.items() if count and name != "total"]
    for row in rows:
        at = row["mode"] if row["tensor"] == node["outputs"][0] else f"{row['mode']}.{row['tensor']}"
        found += [(f"psnr_db.{at}", f"{row['PSNR (dB)']:.6g}"), (f"mismatches.{at}", _mismatches(row))]
    return found


def _mismatches(row: Mapping[str, Any]) -> str:
    return f"{row['Bitwise Mismatches']} of {row['total']}, at most {row['Max Abs Err / ε']:.6g} LSB"


def _kernel(node: Mapping[str, Any], record: Record) -> Mapping[str, Any] | None:
    if node["kernel"] is None:
        return None
    stage = next(each for each in record["stages"] if each["index"] == node["stage"])
    found: Mapping[str, Any] = stage["kernels"][node["kernel"]]
    return found


def model_explorer(record: Record, metric: str) -> dict[str, Any]:
    """Node data of Model Explorer for the node ids of its ONNX adapter, the nodes' names.

    Raises UserError for an unknown metric.
    """
    if metric not in METRICS:
        raise UserError(f"metric must be one of {', '.join(METRICS)}, found '{metric}'. Choose one of these.")
    values = _cycles(record) if metric == "cycles" else _errors(record, metric)
    stops = [{**each, "stop": 1 - each["stop"]} for each in reversed(GRADIENT)] if metric in DESCENDING else GRADIENT
    return {"results": {name: {"value": value} for name, value in values.items()}, "gradient": stops}


def _cycles(record: Record) -> dict[str, float]:
    """A kernel's cycles are given to the nodes that it computes in equal parts, so that sums over groups are right."""
    found = {}
    for node in record["nodes"]:
        kernel = _kernel(node, record)
        if kernel is not None:
            found[node["name"]] = kernel["cycles"]["total"] / len(kernel["nodes"])
    return found


def _errors(record: Record, metric: str) -> dict[str, float]:
    key = {"psnr": "PSNR (dB)", "mismatches": "Mismatch %", "lsb": "Max Abs Err / ε"}[metric]
    worst = min if metric in DESCENDING else max
    found: dict[str, float] = {}
    for row in record["rows"]:
        if row["mode"] == ISOLATED and row["Type"] != "Output" and math.isfinite(row[key]):
            found[row["node"]] = worst(found.get(row["node"], row[key]), row[key])
    return found


def find_model(record: Record, folder: Path, given: Path | None) -> Path:
    """The recorded model: ``given``, or its file name in ``folder`` or here. Raises UserError if it is not the model that ran."""
    from epu.run_record import file_sha256

    name, wanted = record["model"]["file"], record["model"]["sha256"]
    places = [given] if given is not None else [folder / name, Path(name)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise UserError(f"the model '{name}' is not in '{folder}' nor here. Say where it is with --model PATH.")
    if wanted is not None and file_sha256(path) != wanted:
        raise UserError(
            f"'{path}' is not the model that ran: its SHA-256 differs from the record's ({wanted[:12]}…). "
            "Give that one with --model PATH."
        )
    return path
