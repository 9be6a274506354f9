"""A run record in a few tables at the prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from epu.reports import cycle_bars, grid
from epu.simulator.machine import KIB, MIB

MOST_KERNELS = 15
RISKS = ("saturated", "beyond range", "close")


def record_text(record: Mapping[str, Any]) -> str:
    """Summary, cycle bars, the kernels that take longest, tensors at risk."""
    parts = [grid(_summary(record)), cycle_bars(record["totals"]["cycles"]), _longest(record)]
    at_risk = [each for each in record["tensors"] if each["risk"] in RISKS]
    if at_risk:
        rows = [
            (each["name"], each["type"], each["risk"], _interval(each["range"]), _interval(each["seen"]))
            for each in at_risk
        ]
        parts.append(grid(rows, ("Tensor at risk", "Type", "Risk", "Range", "Seen")))
    return "\n".join(parts)


def _summary(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    totals, validation = record["totals"], record["validation"]
    yield "Model", record["model"]["file"]
    yield "Module", record["settings"]["module"]
    yield "Rounding", record["settings"]["rounding"]
    yield "Validation", "none" if validation is None else "PASS" if validation["passed"] else "FAIL"
    yield "Cycles", f"{totals['cycles']['total']:,}"
    yield "Latency (ms)", f"{totals['latency_s'] * 1e3:.3f}"
    yield "MAC Utilization", f"{totals['mac_utilization']:.2%}"
    yield "Max L2M, LRM", f"{totals['peak_ocm_bytes'] / MIB:.3f}MB, {totals['peak_lrm_bytes'] / KIB:.3f}kB"
    places = [node["where"] for node in record["nodes"]]
    yield "Nodes", ", ".join(f"{places.count(where)} {where}" for where in dict.fromkeys(places))


def _longest(record: Mapping[str, Any]) -> str:
    kernels = [kernel for stage in record["stages"] for kernel in stage.get("kernels", ())]
    kernels.sort(key=lambda kernel: -kernel["cycles"]["total"])
    whole = record["totals"]["cycles"]["total"] or 1
    rows = [
        (
            each["name"],
            each["op"],
            f"{each['cycles']['total']:,}",
            f"{each['cycles']['total'] / whole:.1%}",
            each["bound"],
        )
        for each in kernels[:MOST_KERNELS]
    ]
    return grid(rows, ("Longest kernels", "Op", "Cycles", "Share", "Bound by"))


def _interval(pair: list[float] | None) -> str:
    return "-" if pair is None else f"{pair[0]:.5g} … {pair[1]:.5g}"
