"""Tables and reports as text: module, inputs and outputs, cycles, performance, validation rows; and strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epu.colour import red
from epu.hw_config import HWConfig
from epu.metrics import Row
from epu.reasons_names import unexplained
from epu.simulator.machine import KIB, MIB, Machine

if TYPE_CHECKING:
    from epu.quantization.accuracy import Accuracy

CYCLE_CLASSES = ("compute", "mac", "data_array", "data_ocm", "data_external")
CYCLE_FIELDS = ("total", *CYCLE_CLASSES, "overlap")
BAR_WIDTH = 50
RULE = "=" * 70


@dataclass(frozen=True)
class Peak:
    """The most memory in use at once, bytes."""

    ocm_bytes: int
    lrm_bytes: int
    ext_temp_bytes: int


@dataclass(frozen=True)
class Performance:
    """What one inference costs on the machine, from its cycles and external traffic."""

    machine: Machine
    cycles: int
    macs: int
    ext_read_bytes: int
    ext_write_bytes: int
    energy_joules: float = 0.0

    @property
    def seconds(self) -> float:
        return self.cycles / (self.machine.clock_ghz * 1e9)

    @property
    def mac_utilization(self) -> float:
        """Share of the array's multiply-accumulates that did work, 0 to 1."""
        return self.macs / (self.cycles * self.machine.pes * self.machine.macs_per_pe) if self.cycles else 0.0

    @property
    def power_watts(self) -> float:
        """Average dynamic power while one inference follows the other."""
        return self.energy_joules / self.seconds if self.cycles else 0.0

    def bandwidth_gbps(self, count: int) -> float:
        """Average over the run of ``count`` bytes, in 10^9 bytes per second."""
        return count / self.seconds / 1e9 if self.cycles else 0.0


def grid(rows: Iterable[Sequence[object]], headers: Sequence[str] = ()) -> str:
    """Rows as a table in the fancy grid, numbers as they are given."""
    from tabulate import tabulate  # not at the top: `epu run` works without it

    return str(tabulate([list(row) for row in rows], headers=headers, tablefmt="fancy_grid", disable_numparse=True))


def module_table(name: str, onnx_file: str, hw: HWConfig, peak: Peak, gmacs: float, custom_ops: str = "") -> str:
    """What was compiled, for which hardware, and what it needs."""
    rows = [
        ("Module Name", name),
        ("ONNX File", onnx_file),
        *([("Custom Ops", custom_ops)] if custom_ops else []),
        ("Product Target", hw.product),
        ("Number of Cores", hw.num_cores),
        ("ISS Clock Frequency", f"{hw.clock_freq_ghz:.3f}"),
        ("L2M Size", hw.ocm_size),
        ("LRM Size", hw.lrm_size),
        ("External Read BW", hw.ext_rd_bw),
        ("External Write BW", hw.ext_wr_bw),
        ("MACS per PE", hw.macs_per_pe),
        ("Max L2M", f"{peak.ocm_bytes / MIB:.3f}MB"),
        ("Max LRM", f"{peak.lrm_bytes / KIB:.3f}kB"),
        ("Max Temp Ext Bytes", f"{peak.ext_temp_bytes / MIB:.3f}MB"),
        ("Network GMACs", f"{gmacs:.3f}"),
    ]
    return grid(rows)


def io_table(rows: Iterable[tuple[str, str, Sequence[int], str, float | None]]) -> str:
    """Inputs and outputs: kind, name, shape, type, and the mean squared error against ORT once validated."""
    lines = [
        (index, kind, name, list(shape), type_text, "n/a" if mse is None else f"{mse:.3e}")
        for index, (kind, name, shape, type_text, mse) in enumerate(rows)
    ]
    return grid(lines, ("", "Type", "Name", "shape", "type", "mse"))


def cycle_bars(cycles: Mapping[str, int]) -> str:
    """One bar per cycle class; the classes less the overlap are the total."""
    shown = [*CYCLE_CLASSES, *(["overlap"] if cycles.get("overlap") else [])]
    peak = max((cycles[name] for name in shown), default=0)
    return "\n".join(f"{name:<13}: {_bar(cycles[name], peak)} {_thousands(cycles[name])}" for name in shown)


def performance_report(performance: Performance) -> str:
    """Latency, throughput, external traffic, MAC utilisation, and the dynamic energy with what follows from it."""
    read, write = performance.ext_read_bytes, performance.ext_write_bytes
    rows = [
        ("Latency (ms)", f"{performance.seconds * 1e3:.3f}"),
        ("FPS", _per_second(performance.seconds)),
        ("Ext Rd Bytes (MB)", f"{read / MIB:.2f}"),
        ("Ext Wr Bytes (MB)", f"{write / MIB:.2f}"),
        ("Avg Ext Rd BW (GBps)", f"{performance.bandwidth_gbps(read):.2f}"),
        ("Avg Ext Wr BW (GBps)", f"{performance.bandwidth_gbps(write):.2f}"),
        ("MAC Utilization", f"{performance.mac_utilization:.2%}"),
        ("Dynamic Energy (uJ)", f"{performance.energy_joules * 1e6:.1f}"),
        ("Average Dynamic Power (mW)", f"{performance.power_watts * 1e3:.2f}"),
        ("FPS per Watt (FPS/W)", _per_second(performance.energy_joules)),
    ]
    title = f"Post-ISS Report {performance.machine.clock_ghz:g} GHz"
    return f"{title}\nFrom the cycle and energy model of docs/machine.md, whose prices are assumptions.\n{grid(rows)}"


def totals(cycles: Mapping[str, int], seconds: float) -> str:
    """Cycles and executions per second, one line each."""
    return f"[EPU] : TotalCycles: {cycles['total']:,}\n[EPU] : Executions/second: {_per_second(seconds)}"


def accuracy_table(accuracy: Accuracy) -> str:
    """Nodes by the harm that they alone do, and the scores."""
    rows = [
        (each.node, each.op, f"{each.harm:.6f}", "fixed point" if each.left_float else "int8")
        for each in accuracy.nodes
    ]
    scores = (
        f"{accuracy.metric}: float {accuracy.float_score:.6f}, all int8 {accuracy.int8_score:.6f}, "
        f"chosen {accuracy.score:.6f}, goal {accuracy.goal:.6f}; {len(accuracy.left_float)} nodes left in fixed point"
    )
    return "\n".join([*([grid(rows, ("Node", "Op", "Harm", "Runs in"))] if rows else []), scores])


def validation_blocks(title: str, rows: Iterable[Row]) -> str:
    """The layer-by-layer report: a headline, then one block per row."""
    blocks = [_block(row) for row in rows]
    return "\n".join([RULE, title, RULE, *blocks, f"{len(blocks)} entries"])


def _block(row: Row) -> str:
    total = row["total"]
    above = row["Mismatches Above Tol"]
    lines = [
        ("Bitwise Mismatches", f"{row['Bitwise Mismatches']} / {total} ({row['Mismatch %']:.4f}%)"),
        ("Mismatches > Tol", f"{above} / {total} ({100 * above / total if total else 0:.4f}%)"),
        ("Thresholds", f"rtol={row['rtol']}, atol={row['atol']}"),
        ("RMSE", f"{row['RMSE']:.6g}"),
        ("PSNR", f"{row['PSNR (dB)']:.2f} dB"),
        ("Max Abs Err", f"{row['Max Abs Err']:.6g}"),
        ("Max Abs Err / ε", f"{row['Max Abs Err / ε']:.6g}"),
        ("Max Err Loc", row["Max Abs Err Loc"]),
        ("ORT @ max err", _value(row["ORT[loc]"])),
        ("ISS @ max err", _value(row["ISS[loc]"])),
    ]
    comment = [("Comment", row["Comment"])] if row["Comment"] not in ("", "-") else []
    head = f"{row['Name']} ({row['S']}, {row['Type']}, {row['dtype']})"
    head = red(head) if unexplained(row.get("reasons", {})) else head
    return "\n".join([head, *(f"    {label:<20}{value}" for label, value in [*lines, *comment])])


def to_json(value: object, indent: int | None = 1) -> str:
    """JSON that any parser reads: infinity as the number 1e999, which parsers read as infinity; NaN as null.

    Tuples are lists; NumPy scalars must have been converted before. ``indent``: None for one line.
    """
    marker = "\ue000infinity"  # a private-use character: no name of ours holds it
    text = json.dumps(_finite(value, marker), indent=indent, allow_nan=False, ensure_ascii=False)
    return text.replace(f'"{marker}"', "1e999").replace(f'"-{marker}"', "-1e999")


def _finite(value: Any, marker: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item, marker) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item, marker) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else marker if value > 0 else f"-{marker}"
    return value


def _bar(value: int, peak: int) -> str:
    blocks = round(BAR_WIDTH * value / peak) if peak else 0
    return "▇" * blocks if blocks else "▏"


def _thousands(value: int) -> str:
    """Three decimals at most: 24.939K, 6.007M, 870."""
    for unit, size in (("M", 10**6), ("K", 10**3)):
        if value >= size:
            return f"{value / size:.3f}".rstrip("0").rstrip(".") + unit
    return str(value)


def _per_second(seconds: float) -> str:
    return f"{1 / seconds:.2f}" if seconds else "n/a"


def _value(value: float | int | None) -> str:
    return f"{value:.8g}" if isinstance(value, float) else str(value)
