"""What a notebook shows for a job, a validation, a placement and a memory map: small tables and pictures as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from epu.reports import CYCLE_CLASSES
from epu.simulator.machine import KIB, MIB

if TYPE_CHECKING:
    from epu.job import ChimeraJob
    from epu.job_placement import Placement
    from epu.validation_result import ValidationResult

COLORS = dict(zip(CYCLE_CLASSES, ("#4e79a7", "#59a14f", "#d9b310", "#f28e2b", "#e15759")))
ROW_FIELDS = ("S", "Name", "dtype", "Bitwise Mismatches", "total", "PSNR (dB)", "Max Abs Err / ε", "Comment")
MOST_ROWS = 200
MAP_WIDTH, MAP_HEIGHT = 900, 260


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; every cell is escaped."""
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in headers)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escape(_text(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def job_html(job: ChimeraJob) -> str:
    """Name, sizes, placement in a line; cycles as a bar once it has run; the verdict once it is validated."""
    if not job.is_compiled:
        return f"<b>ChimeraJob</b> {escape(job.module_name)}: not compiled yet"
    record = job.record()
    totals = record["totals"]
    where = [node["where"] for node in record["nodes"]]
    facts = [
        ("Model", record["model"]["file"]),
        ("Hardware", record["settings"]["hardware"]),
        ("GMACs", totals["macs"] / 1e9),
        ("Nodes", ", ".join(f"{where.count(each)} {each}" for each in dict.fromkeys(where))),
        ("Max L2M, LRM", f"{totals['peak_ocm_bytes'] / MIB:.3f} MiB, {totals['peak_lrm_bytes'] / KIB:.3f} KiB"),
        ("Cycles", f"{totals['cycles']['total']:,} ({totals['latency_s'] * 1e3:.3f} ms)"),
        ("MAC utilisation", f"{totals['mac_utilization']:.2%}"),
    ]
    if record["validation"] is not None:
        facts.append(("Validation", "PASS" if record["validation"]["passed"] else "FAIL"))
    title = f"<b>ChimeraJob</b> {escape(job.module_name)}"
    return f"<div>{title}{table(('', ''), facts)}{cycle_bar(totals['cycles'])}</div>"


def cycle_bar(cycles: Mapping[str, int]) -> str:
    """One bar, a stretch per class as wide as its busy cycles."""
    busy = sum(cycles[name] for name in CYCLE_CLASSES) or 1
    parts = [
        f"<span title='{name}: {cycles[name]:,} cycles' style='display:inline-block;height:14px;"
        f"width:{100 * cycles[name] / busy:.3f}%;background:{COLORS[name]}'></span>"
        for name in CYCLE_CLASSES
    ]
    words = " · ".join(f"<span style='color:{COLORS[name]}'>■</span> {name} {cycles[name]:,}" for name in CYCLE_CLASSES)
    return f"<div style='max-width:700px;font-size:0;white-space:nowrap'>{''.join(parts)}</div><small>{words}</small>"


def validation_html(result: ValidationResult) -> str:
    """Verdict, summary, and the isolated rows that differ or fail, folded."""
    verdict = "<b style='color:#14804a'>PASS</b>" if result.passed else "<b style='color:#c0262d'>FAIL</b>"
    reasons = "".join(f"<li>{escape(each)}</li>" for each in result.failures)
    plain = [
        (name.replace("_", " "), value) for name, value in result.summary.items() if not isinstance(value, Mapping)
    ]
    isolated = [
        row for row in result if row["mode"] == "isolated" and (row["S"] != "PASS" or row["Bitwise Mismatches"])
    ]
    shown = [[row[name] for name in ROW_FIELDS] for row in isolated[:MOST_ROWS]]
    more = f", the first {MOST_ROWS}" if len(isolated) > MOST_ROWS else ""
    rows = f"<details><summary>{len(isolated)} isolated rows with differences{more}</summary>{table(ROW_FIELDS, shown)}</details>"
    return f"<div>{verdict} {escape(result.model)} on {escape(result.hw)}<ul>{reasons}</ul>{table(('', ''), plain)}{rows}</div>"


def placement_html(placement: Placement) -> str:
    """The host's nodes with reason and remedy; the others counted."""
    where = [row.where for row in placement]
    counted = ", ".join(f"{where.count(each)} {each}" for each in dict.fromkeys(where)) or "no nodes"
    host = [(row.node, row.op, row.stage, row.reason, row.remedy) for row in placement.host]
    headers = ("Host node", "Op", "Stage", "Reason", "Remedy")
    return f"<div>Nodes: {escape(counted)}{table(headers, host) if host else ''}</div>"


class MemoryView:
    """The OCM of a job over time; shows itself in a notebook, ``tenants`` are its rows."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.tenants = [tenant for stage in record["stages"] for tenant in stage.get("ocm", ())]
        self._cycles = record["totals"]["cycles"]["total"] or 1
        self._peak = record["totals"]["peak_ocm_bytes"] or 1
        self._capacity = record["machine"]["ocm_bytes"]

    def __repr__(self) -> str:
        return f"OCM: {len(self.tenants)} tenants, at most {self._peak:,} of {self._capacity:,} bytes"

    def _repr_html_(self) -> str:
        boxes = "".join(map(self._box, self.tenants))
        size = f"width='{MAP_WIDTH}' height='{MAP_HEIGHT}'"
        ground = f"<rect {size} fill='#f4f5f7'/>"
        return (
            f"<div>{escape(repr(self))}<br><svg {size} xmlns='http://www.w3.org/2000/svg'>{ground}{boxes}</svg></div>"
        )

    def _box(self, tenant: Mapping[str, Any]) -> str:
        x, wide = (MAP_WIDTH * cycles / self._cycles for cycles in (tenant["start"], tenant["end"] - tenant["start"]))
        y, high = (
            MAP_HEIGHT * size / self._peak for size in (self._peak - tenant["addr"] - tenant["bytes"], tenant["bytes"])
        )
        about = escape(
            f"{tenant['name']} ({tenant['kind']}), {tenant['bytes']:,} bytes at {tenant['addr']:,}", quote=True
        )
        hue = sum(map(ord, tenant["name"])) * 137 % 360
        return (
            f"<rect x='{x:.2f}' y='{y:.2f}' width='{max(wide, 0.6):.2f}' height='{max(high, 0.6):.2f}' "
            f"fill='hsl({hue} 46% 56%)' stroke='white' stroke-width='0.5'><title>{about}</title></rect>"
        )
