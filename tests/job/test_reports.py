"""Reports: the lines users know, numbers by hand, JSON without Infinity and NaN."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from epu.graph import Quantized
from epu.hw_config import HWConfig
from epu.metrics import compare
from epu.reports import (
    Peak,
    Performance,
    cycle_bars,
    io_table,
    module_table,
    performance_report,
    to_json,
    totals,
    validation_blocks,
)
from epu.simulator.machine import Machine

CYCLES = {
    "total": 8_600_000,
    "compute": 1_849_000,
    "mac": 489_686,
    "data_array": 253_084,
    "data_ocm": 6_007_000,
    "data_external": 24_939,
    "overlap": 23_709,
}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_module_table() -> None:
    text = module_table("m_QC_U", "m.onnx", HWConfig(), Peak(6789530, 256, 0), 3.2291)
    rows = dict(cells(line) for line in text.splitlines() if line.startswith("│"))
    assert rows["Module Name"] == "m_QC_U"
    assert rows["Max L2M"] == "6.475MB"
    assert rows["Max LRM"] == "0.250kB"
    assert rows["Max Temp Ext Bytes"] == "0.000MB"
    assert rows["Network GMACs"] == "3.229"
    assert rows["ISS Clock Frequency"] == "1.560"
    assert list(rows)[:3] == ["Module Name", "ONNX File", "Product Target"]


def test_io_table() -> None:
    text = io_table([("Input", "src", (1, 360, 256), "tensor[FixedPoint32<29>]", None), ("Output", "y", (), "t", 0.25)])
    lines = [cells(line) for line in text.splitlines() if line.startswith("│")]
    assert lines[0] == ["", "Type", "Name", "shape", "type", "mse"]
    assert lines[1] == ["0", "Input", "src", "[1, 360, 256]", "tensor[FixedPoint32<29>]", "n/a"]
    assert lines[2][-1] == "2.500e-01"


def test_cycle_bars_scale_to_the_longest() -> None:
    bars = {line.split(":")[0].strip(): line.split(":")[1].split() for line in cycle_bars(CYCLES).splitlines()}
    assert bars["data_ocm"] == ["▇" * 50, "6.007M"]
    assert bars["compute"] == ["▇" * 15, "1.849M"]
    assert bars["data_array"] == ["▇" * 2, "253.084K"]
    assert bars["data_external"] == ["▏", "24.939K"]
    assert bars["overlap"] == ["▏", "23.709K"]


def test_performance_by_hand() -> None:
    machine = Machine.for_product("QC-U")
    performance = Performance(machine, 1_560_000, 2**30, 2**20, 2**19, energy_joules=2e-3)
    assert performance.seconds == pytest.approx(1e-3)
    assert performance.mac_utilization == pytest.approx(2**30 / (1_560_000 * 1024 * 16))
    assert performance.bandwidth_gbps(2**20) == pytest.approx(1.048576)
    text = performance_report(performance)
    rows = dict(cells(line) for line in text.splitlines() if line.startswith("│"))
    assert rows["Latency (ms)"] == "1.000"
    assert rows["FPS"] == "1000.00"
    assert (rows["Ext Rd Bytes (MB)"], rows["Ext Wr Bytes (MB)"]) == ("1.00", "0.50")
    assert rows["Avg Ext Wr BW (GBps)"] == "0.52"
    assert rows["MAC Utilization"] == "4.20%"
    assert (rows["Dynamic Energy (uJ)"], rows["Average Dynamic Power (mW)"]) == ("2000.0", "2000.00")
    assert rows["FPS per Watt (FPS/W)"] == "500.00"


def test_no_cycles_no_division() -> None:
    performance = Performance(Machine.for_product("QC-N"), 0, 0, 0, 0)
    assert "n/a" in performance_report(performance)


def test_totals() -> None:
    assert totals(CYCLES, 0.005) == "[EPU] : TotalCycles: 8,600,000\n[EPU] : Executions/second: 200.00"


def test_validation_block_reads_as_in_the_notebook() -> None:
    row = compare(np.array([1, 53], np.int8), np.array([1, 50], np.int8), Quantized("int8", (1.0,), (0,)))
    row = {"S": "PASS", "Type": "Node", "Name": "q:0", **row}
    text = validation_blocks("ISS validation results", [row])
    assert "q:0 (PASS, Node, int8)" in text
    assert "Bitwise Mismatches  1 / 2 (50.0000%)" in text
    assert "Mismatches > Tol    0 / 2 (0.0000%)" in text
    assert "Max Err Loc         (1,)" in text
    assert "ORT @ max err       53" in text
    assert text.endswith("1 entries")


def test_json_has_neither_infinity_nor_nan() -> None:
    value = {"a": [math.inf, -math.inf, math.nan, (1, 2.5)], "s": "Infinity NaN ε"}
    text = to_json(value)
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": [math.inf, -math.inf, None, [1, 2.5]],
        "s": "Infinity NaN ε",
    }
