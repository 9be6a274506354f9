"""What changed between two run records: settings, values, cycles, memory, placement, ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from epu.reports import CYCLE_FIELDS, grid

Record = Mapping[str, Any]
Keyed = dict[str, dict[str, Any]]

ROW_FIELDS = ("S", "dtype", "Bitwise Mismatches", "PSNR (dB)", "Max Abs Err", "Comment")
BY_SIZE = ("cycles", "memory")  # the other sections are in the model's order
MOST_LINES = 40  # of a section, in text


def diff(a: Record, b: Record) -> dict[str, list[dict[str, Any]]]:
    """Sections of changes, each a list of ``{"what", "field", "a", "b"}``; None on the side that lacks it. Empty: the same.

    A run that saw no tensor, or was not validated, has one line in "values" or "rows", not one for every tensor.
    """
    sections: dict[str, Callable[[Record], Keyed]] = {
        "settings": _settings,
        "values": _values,
        "rows": _rows,
        "cycles": _cycles,
        "memory": _memory,
        "placement": _placement,
        "ranges": _ranges,
    }
    return {name: list(_changes(view(a), view(b))) for name, view in sections.items()}


def _changes(a: Keyed, b: Keyed) -> Iterable[dict[str, Any]]:
    if bool(a) != bool(b):
        yield {"what": "all", "field": "present", "a": bool(a), "b": bool(b)}
        return
    for what in dict.fromkeys((*a, *b)):
        if what not in a or what not in b:
            yield {"what": what, "field": "present", "a": what in a, "b": what in b}
            continue
        for field in dict.fromkeys((*a[what], *b[what])):
            left, right = a[what].get(field), b[what].get(field)
            if left != right:
                yield {"what": what, "field": field, "a": left, "b": right}


def _settings(record: Record) -> Keyed:
    parts = {name: dict(record[name]) for name in ("software", "model", "settings", "machine")}
    return parts | {"validation": {"passed": record["validation"]["passed"] if record["validation"] else None}}


def _values(record: Record) -> Keyed:
    """Tensors of the free run that were seen: a digest tells whether one bit differs."""
    return {each["name"]: {"digest": each["digest"]} for each in record["tensors"] if each["digest"]}


def _rows(record: Record) -> Keyed:
    return {
        f"{row['mode']} {row['Type']} {row['Name']}": {name: row[name] for name in ROW_FIELDS} for row in record["rows"]
    }


def _cycles(record: Record) -> Keyed:
    found = {"total": dict(record["totals"]["cycles"])}
    for stage in record["stages"]:
        for kernel in stage.get("kernels", ()):
            names = {name: kernel["cycles"][name] for name in CYCLE_FIELDS}
            found[_unused(found, f"kernel {kernel['name']}")] = {**names, "bound": kernel["bound"]}
    return found


def _memory(record: Record) -> Keyed:
    totals = record["totals"]
    found: Keyed = {"total": {name: totals[name] for name in totals if name.endswith("_bytes")}}
    for stage in record["stages"]:
        for tenant in stage.get("ocm", ()):
            about = {name: tenant[name] for name in ("addr", "bytes")}  # kernel numbers move with every new kernel
            found[_unused(found, f"OCM {tenant['kind']} {tenant['name']}")] = about
        for kernel, peak in zip(stage.get("kernels", ()), stage.get("lrm", {}).get("peak", ())):
            found[_unused(found, f"LRM {kernel['name']}")] = {"peak": peak}
    return found


def _placement(record: Record) -> Keyed:
    return {node["name"]: {name: node[name] for name in ("where", "stage", "reason")} for node in record["nodes"]}


def _ranges(record: Record) -> Keyed:
    fields = ("type", "range", "source", "limits", "risk")
    return {each["name"]: {name: each[name] for name in fields} for each in record["tensors"]}


def _unused(found: Keyed, name: str) -> str:
    """The name, numbered from its second use on: a tensor may come to OCM twice."""
    number, candidate = 2, name
    while candidate in found:
        candidate, number = f"{name} #{number}", number + 1
    return candidate


def diff_text(changes: Mapping[str, list[dict[str, Any]]], names: tuple[str, str]) -> str:
    """The changes as tables, the first lines of each section; of cycles and memory the totals, then the largest."""
    parts = []
    for section, lines in changes.items():
        if not lines:
            parts.append(f"{section}: the same")
            continue
        if section in BY_SIZE:
            lines = sorted(lines, key=lambda each: (each["what"] != "total", -abs(_difference(each) or 0)))
        shown = [(each["what"], each["field"], _cell(each["a"]), _cell(each["b"]), _delta(each)) for each in lines]
        table = grid(shown[:MOST_LINES], (section, "field", *names, "change"))
        more = f"\n… and {len(lines) - MOST_LINES} more; --json gives all" if len(lines) > MOST_LINES else ""
        parts.append(f"{section}: {len(lines)} change{'s' * (len(lines) > 1)}\n{table}{more}")
    return "\n".join(parts)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_cell, value)) + "]"
    return "-" if value is None else str(value)


def _difference(change: Mapping[str, Any]) -> float | None:
    """Of two finite numbers."""
    a, b = change["a"], change["b"]
    if any(isinstance(each, bool) or not isinstance(each, (int, float)) or not math.isfinite(each) for each in (a, b)):
        return None
    return float(b - a)


def _delta(change: Mapping[str, Any]) -> str:
    """The change of a number, in its own unit and in percent."""
    difference = _difference(change)
    if difference is None:
        return ""
    share = f" ({100 * difference / abs(change['a']):+.1f} %)" if change["a"] else ""
    return f"{difference:+.10g}{share}"
