"""A sweep as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from epu.figures import blank_figure
from epu.reports import grid
from epu.simulator.machine import MIB
from epu.sweep.points import OK, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADERS = ("", "Machine", "Latency (ms)", "FPS", "Energy (uJ)", "OCM (MB)", "Max L2M (MB)", "MAC Utilization", "Note")

WIDE = 5  # from this ratio on an axis has a label at 1, 2 and 5 alone


def table(rows: Sequence[Row], options: Sequence[str]) -> str:
    """One line per row, Pareto-optimal ones marked with ★."""
    return grid([_line(row, options) for row in rows], HEADERS)


def _line(row: Row, options: Sequence[str]) -> list[object]:
    machine = " ".join(str(row[name]) for name in options)
    if row["status"] != OK:
        return ["", machine, *["-"] * 6, f"{row['status']}: {row['error']}"[:90]]
    return [
        "★" if row["pareto"] else "",
        machine,
        f"{row['latency_ms']:.3f}",
        f"{1e3 / row['latency_ms']:.1f}",
        f"{row['energy_uj']:.1f}",
        f"{row['ocm_bytes'] / MIB:g}",
        f"{row['peak_ocm_bytes'] / MIB:.2f}",
        f"{row['mac_utilization']:.1%}",
        f"{row['host_nodes']} nodes on the host" if row["host_nodes"] else "",
    ]


def pareto_figure(rows: Sequence[Row], options: Sequence[str]) -> Figure:
    """Latency against energy, both logarithmic; the size of a mark is the OCM, Pareto-optimal points are filled and named."""
    figure = blank_figure((8, 5))
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    axes = figure.add_subplot(xscale="log", yscale="log", xlabel="latency (ms)", ylabel="dynamic energy (µJ)")
    measured = [row for row in rows if row["status"] == OK]
    products = list(dict.fromkeys(row.get("product", "") for row in measured))
    for index, product in enumerate(products):
        _scatter(axes, [row for row in measured if row.get("product", "") == product], product, f"C{index}")
    for row in measured:
        if row["pareto"]:
            label = " ".join(str(row[name]) for name in options)
            axes.annotate(label, (row["latency_ms"], row["energy_uj"]), (6, 4), textcoords="offset points", fontsize=8)
    axes.margins(0.2)
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        if high > WIDE * low:
            axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))  # a label at each of 2 to 9 would overlap
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(StrMethodFormatter("{x:g}"))
    axes.grid(visible=True, which="both", alpha=0.25)
    if products:
        axes.legend(title="mark size: OCM")
    return figure


def _scatter(axes: Any, rows: Sequence[Row], product: str, colour: str) -> None:
    axes.scatter(
        [row["latency_ms"] for row in rows],
        [row["energy_uj"] for row in rows],
        s=[20 + 15 * row["ocm_bytes"] / MIB for row in rows],
        facecolors=[colour if row["pareto"] else "none" for row in rows],
        edgecolors=colour,
        label=product,
    )
