"""The pictures of a report as Matplotlib figures. Each takes a compiled job, a run directory or a run record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from epu.errors import UserError
from epu.figures import blank_figure
from epu.metrics import MODES
from epu.reports import CYCLE_CLASSES
from epu.run_record import record_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Json = Mapping[str, Any]

CLASS_COLORS = dict(zip(CYCLE_CLASSES, ("#4e79a7", "#59a14f", "#d9b310", "#f28e2b", "#e15759")))
MODE_COLORS = dict(zip(MODES, ("#3056d3", "#f28e2b", "#c0262d")))
KIND_COLORS = {"constants": "#8d99ae", "scratch": "#c9a227", "slice": "#7aa6a1"}
RISK_COLORS = {"saturated": "#c0262d", "beyond range": "#b25e09", "clipped": "#d9b310", "close": "#f28e2b"}
LETTERS = 150  # of the font of names that the width of the map holds
NO_ERROR_DB = 200.0  # where rows without error are drawn


def error_by_depth(source: Any) -> Figure:
    """PSNR of each node output against the node's depth, one colour per mode; rows without error at 200 dB."""
    figure, axes = _figure("Error against depth", "depth in the model", "PSNR, dB", (10, 4))
    rows = [row for row in _validated(source)["rows"] if row["Type"] != "Output" and row["S"] != "SKIPPED"]
    for mode in reversed(MODES):
        own = [row for row in rows if row["mode"] == mode]
        heights = [min(max(row["PSNR (dB)"], 0.0), NO_ERROR_DB) for row in own]
        axes.scatter([row["depth"] for row in own], heights, s=9, color=MODE_COLORS[mode], label=mode.replace("_", " "))
    axes.axhline(NO_ERROR_DB, color="#98a2b3", linewidth=0.6, linestyle=":")
    axes.legend(loc="lower left")
    return figure


def cycles_by_class(source: Any) -> Figure:
    """Cycles of each kernel in program order, stacked by class; a mark shows the time taken, overlap counted once."""
    figure, axes = _figure("Cycles by class", "kernel", "cycles", (10, 4))
    kernels = _kernels(record_of(source))
    bottom = [0] * len(kernels)
    for name in CYCLE_CLASSES:
        counts = [kernel["cycles"][name] for kernel in kernels]
        axes.bar(range(len(kernels)), counts, bottom=bottom, width=0.9, color=CLASS_COLORS[name], label=name)
        bottom = [a + b for a, b in zip(bottom, counts)]
    totals = [kernel["cycles"]["total"] for kernel in kernels]
    axes.scatter(range(len(kernels)), totals, marker="_", s=12, color="black", label="time taken")
    axes.legend(loc="upper right")  # "best" takes seconds to find
    return figure


def roofline(source: Any, memory: str = "port") -> Figure:
    """Work per cycle against work per byte; ``memory``: "port" (OCM and array) or "external"."""
    fields = {"port": ("port_bytes", "port_bytes_per_cycle"), "external": ("ext_bytes", "ext_read_bytes_per_cycle")}
    if memory not in fields:
        raise UserError(f"roofline: memory must be 'port' or 'external', found {memory!r}. Choose one of these.")
    record = record_of(source)
    field, rate = fields[memory][0], record["machine"][fields[memory][1]]
    figure, axes = _figure("Roofline", f"work per byte ({memory})", "work per cycle", (8, 5))
    axes.set(xscale="log", yscale="log")
    shown = [each for each in _kernels(record) if each[field] and _work(each) and each["cycles"]["total"]]
    for name in CYCLE_CLASSES:
        for marker, has_macs in (("o", True), ("s", False)):
            own = [each for each in shown if each["bound"] == name and bool(each["macs"]) == has_macs]
            x, y = [_work(e) / e[field] for e in own], [_work(e) / e["cycles"]["total"] for e in own]
            axes.scatter(x, y, s=24, marker=marker, alpha=0.7, color=CLASS_COLORS[name])
        axes.scatter([], [], color=CLASS_COLORS[name], label=f"bound by {name}")
    _roofs(axes, record["machine"], rate, [_work(each) / each[field] for each in shown])
    axes.legend(fontsize=8)
    return figure


def _roofs(axes: Axes, machine: Json, rate: float, intensities: Iterable[float]) -> None:
    peaks = (machine["peak_macs_per_cycle"], machine["peak_operations_per_cycle"])
    every = [*intensities, *(peak / rate for peak in peaks)]
    low, high = min(every) / 2, max(every) * 4
    for peak, name in zip(peaks, ("MAC array", "ALUs")):
        axes.plot([low, peak / rate, high], [low * rate, peak, peak], color="#667085", linewidth=1)
        axes.annotate(f"{name}, {peak:,} per cycle", (high, peak), ha="right", va="bottom", fontsize=8)


def ocm_map(source: Any) -> Figure:
    """Who holds which addresses of OCM from when to when; tenants that are wide enough are named."""
    record = record_of(source)
    figure, axes = _figure("On-chip memory over time", "cycles", "address in OCM, bytes", (10, 5))
    tenants = [tenant for stage in record["stages"] for tenant in stage.get("ocm", ())]
    for tenant in tenants:
        _box(axes, tenant, KIND_COLORS.get(tenant["kind"]) or _shade(tenant["name"]))
    whole = record["totals"]["cycles"]["total"] or 1
    for tenant in tenants:
        room = int(LETTERS * (tenant["end"] - tenant["start"]) / whole)
        if room >= 4:
            name = "/".join(tenant["name"].split("/")[-2:])[:room]
            axes.annotate(name, (tenant["start"], tenant["addr"] + tenant["bytes"] / 2), fontsize=6, va="center")
    axes.set(xlim=(0, whole), ylim=(0, record["totals"]["peak_ocm_bytes"] or 1))
    return figure


def _box(axes: Axes, tenant: Json, color: str | tuple[float, float, float]) -> None:
    from matplotlib.patches import Rectangle

    corner, size = (tenant["start"], tenant["addr"]), (tenant["end"] - tenant["start"], tenant["bytes"])
    axes.add_patch(Rectangle(corner, *size, facecolor=color, edgecolor="white", linewidth=0.3))


def lrm_peaks(source: Any) -> Figure:
    """The highest LRM byte of each kernel over the time it takes."""
    record = record_of(source)
    figure, axes = _figure("Local register memory", "cycles", "highest byte of each PE", (10, 3))
    for stage in record["stages"]:
        for kernel, peak in zip(stage.get("kernels", ()), stage.get("lrm", {}).get("peak", ())):
            axes.bar(kernel["start"], peak, width=kernel["cycles"]["total"], align="edge", color=_shade(kernel["op"]))
    axes.axhline(record["machine"]["lrm_bytes"], color="#c0262d", linewidth=0.8, linestyle="--")
    return figure


def timeline(source: Any) -> Figure:
    """Who is busy when: PE array, OCM port, external reads and writes."""
    record = record_of(source)
    figure, axes = _figure("Timeline", "cycles", "", (10, 2.6))
    kinds = {**CLASS_COLORS, "Load": "#f28e2b", "Store": "#d7691f", "Mac": "#f7b56b", "Dma": "#e15759"}
    for stage in record["stages"]:
        for track, _ in enumerate(stage.get("timeline", {}).get("tracks", ())):
            for kind, name in enumerate(stage["timeline"]["kinds"]):
                own = [s for s in stage["timeline"]["spans"] if s[0] == track and s[1] == kind]
                bars = [(span[3], span[4] - span[3]) for span in own]
                axes.broken_barh(bars, (-track - 0.4, 0.8), facecolors=kinds[name], alpha=0.8)
    axes.set_yticks([0, -1, -2, -3], ["PE array", "OCM port", "ext. reads", "ext. writes"])
    return figure


def ranges(source: Any, most: int = 40) -> Figure:
    """How much of its word each fixed-point tensor used, the most used first."""
    record = record_of(source)
    tensors = [each for each in record["tensors"] if each["fraction_bits"] is not None and each["use"] is not None]
    tensors = sorted(tensors, key=lambda each: -each["use"])[:most]
    figure, axes = _figure(
        "Use of the word by fixed-point tensors", "share of the limit", "", (9, 1 + 0.2 * len(tensors))
    )
    colors = [RISK_COLORS.get(each["risk"], "#4e79a7") for each in tensors]
    axes.barh(range(len(tensors)), [min(each["use"], 1.0) for each in tensors], color=colors)
    axes.set_yticks(range(len(tensors)), ["/".join(each["name"].split("/")[-3:]) for each in tensors], fontsize=7)
    axes.invert_yaxis()
    axes.axvline(1, color="#c0262d", linewidth=0.8)
    return figure


def placement(source: Any) -> Figure:
    """How many nodes of each op run on the EPU, on the host, or are folded at compile time."""
    nodes = record_of(source)["nodes"]
    ops = sorted({node["op"] for node in nodes})
    figure, axes = _figure("Placement", "nodes", "", (8, 1 + 0.25 * len(ops)))
    left = [0] * len(ops)
    for where, color in (("EPU", "#59a14f"), ("host", "#f28e2b"), ("folded", "#98a2b3")):
        counts = [sum(node["op"] == op and node["where"] == where for node in nodes) for op in ops]
        axes.barh(ops, counts, left=left, color=color, label=where)
        left = [a + b for a, b in zip(left, counts)]
    axes.invert_yaxis()
    axes.legend()
    return figure


def _figure(title: str, x: str, y: str, size: tuple[float, float]) -> tuple[Figure, Axes]:
    figure = blank_figure(size)
    axes = figure.add_subplot()
    axes.set(title=title, xlabel=x, ylabel=y)
    return figure, axes


def _validated(source: Any) -> Json:
    record = record_of(source)
    if not record["rows"]:
        raise UserError(
            "error_by_depth: the run was not validated, so it has no errors. Call validate_ort_iss() first."
        )
    return record


def _kernels(record: Json) -> list[Json]:
    return [kernel for stage in record["stages"] for kernel in stage.get("kernels", ())]


def _work(kernel: Json) -> int:
    return int(kernel["macs"] or kernel["operations"])


def _shade(name: str) -> tuple[float, float, float]:
    """A colour that is always the same for a name."""
    turn = sum(map(ord, name)) * 0.61803
    red, green, blue = (0.62 + 0.22 * math.sin(2 * math.pi * (turn + third / 3)) for third in range(3))
    return red, green, blue
