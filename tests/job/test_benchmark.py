"""The benchmark's numbers belong together, and its JSON holds them."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner
from tiny_module import TinyModule, tiny_model, use_module

from benchmarks.iss_vs_ort import command

pytest.importorskip("tvm", reason="the Relay door needs TVM")


def test_ratio_seconds_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(tiny_model(), tmp_path / "tiny.onnx")
    use_module(monkeypatch, TinyModule())
    report = tmp_path / "bench.json"
    arguments = ["--model", str(tmp_path / "tiny.onnx"), "--product", "QC-N", "--repeats", "3", "--json", str(report)]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    numbers = json.loads(report.read_text())
    assert numbers["iss_over_ort"] == pytest.approx(numbers["iss_seconds"] / numbers["ort_seconds"])
    low, high = numbers["iss_spread"]
    assert low <= numbers["iss_seconds"] <= high
    assert numbers["peak_rss_mb"] >= numbers["peak_rss_mb_compile"] > 10
    assert "iss_over_ort" in result.output
