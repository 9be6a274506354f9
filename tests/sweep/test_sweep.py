"""Sweeps: the grid, the Pareto rule, rows that survive an interruption and a dead worker, the command."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from epu.cli.group import epu
from epu.errors import ConfigError, UserError
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.sweep import Point, grid_of, run_sweep, workers
from epu.sweep.points import FAILED, OK, REFUSED, pareto
from epu.sweep.show import pareto_figure
from epu.sweep.store import Store

pytest.importorskip("tvm", reason="the Relay door needs TVM")


def row(latency: float, energy: float, ocm: int, status: str = OK) -> dict[str, Any]:
    return {"status": status, "latency_ms": latency, "energy_uj": energy, "ocm_bytes": ocm}


def test_grid_is_every_combination_in_order() -> None:
    points = grid_of({"product": ["QC-N", "QC-U"], "macs_per_pe": [8, 16]})
    assert [point.title() for point in points] == [
        "product=QC-N macs_per_pe=8",
        "product=QC-N macs_per_pe=16",
        "product=QC-U macs_per_pe=8",
        "product=QC-U macs_per_pe=16",
    ]


@pytest.mark.parametrize("values", [[], [8, 8]])
def test_empty_or_doubled_choice_is_refused(values: list[int]) -> None:
    with pytest.raises(ConfigError, match="macs_per_pe must be a list of different values"):
        grid_of({"macs_per_pe": values})


def test_pareto_keeps_what_nothing_beats() -> None:
    rows = [row(1, 9, 4), row(2, 5, 4), row(2, 6, 4), row(9, 9, 1), row(0, 0, 0, REFUSED), row(1, 9, 4)]
    assert pareto(rows) == [True, True, False, True, False, True]


def test_key_tells_model_machine_and_rounding_apart() -> None:
    one = Point((("product", "QC-N"),))
    others = [Point((("product", "QC-P"),)), Point((("product", "QC-N"),), "ort")]
    assert len({one.key("a"), one.key("b"), *(other.key("a") for other in others)}) == 4
    assert one.key("a") == Point((("product", "QC-N"),)).key("a")


def test_measures_what_a_job_measures_and_goes_on_where_it_was(tiny: Path, tmp_path: Path) -> None:
    points = grid_of({"product": ["QC-N"], "ocm_size": ["2MB", "1kB", "4MB"]})
    first = run_sweep(tiny, points[:2], tmp_path, jobs=2)
    job = ChimeraJob(tiny, HWConfig("QC-N", ocm_size="2MB"), run_directory=tmp_path / "run")
    job.compile()
    assert (first[0]["status"], first[0]["cycles"]) == (OK, job.performance.cycles)
    assert first[0]["energy_uj"] > 0
    assert (first[1]["status"], "ocm_size" in first[1]["error"] or "OCM" in first[1]["error"]) == (REFUSED, True)
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "points").iterdir()}
    seen: list[tuple[str, int, int]] = []
    again = run_sweep(tiny, points, tmp_path, jobs=1, progress=lambda *told: seen.append(told))
    assert seen == [("Sweep", 3, 3)]
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert [{**each, "pareto": None} for each in again[:2]] == [{**each, "pareto": None} for each in first]


def test_broken_row_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "points").mkdir()
    (tmp_path / "points" / "k.json").write_text("{")
    with pytest.raises(UserError, match=r"k\.json.*must be a row of a sweep"):
        Store(tmp_path).row("k")


def die_once(marker: str) -> dict[str, Any]:
    """Kill the process that runs this, the first time."""
    path = Path(marker)
    if not path.exists():
        path.write_text("died")
        os.kill(os.getpid(), signal.SIGKILL)
    return {"status": OK}


def die(number: int) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {"status": OK}


def answer(number: int) -> dict[str, Any]:
    return {"status": OK, "number": number}


def test_work_of_a_dead_process_is_done_again(tmp_path: Path) -> None:
    calls: dict[str, workers.Call] = {str(number): (answer, (number,)) for number in range(4)}
    calls["dies once"] = (die_once, (str(tmp_path / "marker"),))
    found = dict(workers.local(calls, 2))
    assert sorted(found) == sorted(calls)
    assert found["dies once"] == {"status": OK}
    assert [found[str(number)]["number"] for number in range(4)] == [0, 1, 2, 3]  # type: ignore[index]


def test_only_the_point_that_kills_its_process_fails() -> None:
    calls: dict[str, workers.Call] = {"good": (answer, (1,)), "bad": (die, (2,)), "fine": (answer, (3,))}
    found = dict(workers.local(calls, 2))
    assert isinstance(found["bad"], BaseException)
    assert [found[name]["number"] for name in ("good", "fine")] == [1, 3]  # type: ignore[index]


def test_failed_point_is_told_and_tried_again(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = grid_of({"product": ["QC-N"]})
    monkeypatch.setattr(workers, "local", lambda calls, jobs: iter([(next(iter(calls)), RuntimeError("broken"))]))
    (failed,) = run_sweep(tiny, points, tmp_path)
    assert (failed["status"], failed["error"], failed["pareto"]) == (FAILED, "RuntimeError: broken", False)
    monkeypatch.undo()
    (done,) = run_sweep(tiny, points, tmp_path, jobs=1)
    assert done["status"] == OK


def test_command_prints_the_table_and_writes_the_files(tiny: Path, tmp_path: Path) -> None:
    arguments = ["sweep", str(tiny), "--product", "QC-N,QC-P", "--macs-per-pe", "8", "--jobs", "2", "-o", str(tmp_path)]
    result = CliRunner().invoke(epu, arguments)
    assert result.exit_code == 0, result.output
    assert "★" in result.output
    rows = json.loads((tmp_path / "sweep.json").read_text())
    assert [(each["product"], each["macs_per_pe"]) for each in rows] == [("QC-N", 8), ("QC-P", 8)]
    with (tmp_path / "sweep.csv").open() as file:
        assert [int(each["cycles"]) for each in csv.DictReader(file)] == [each["cycles"] for each in rows]
    assert (tmp_path / "pareto.png").read_bytes().startswith(b"\x89PNG")


def test_a_notebook_shows_the_picture() -> None:
    rows = [{"product": "QC-N", "pareto": True, **row(1.0, 2.0, 1 << 20)}]
    assert pareto_figure(rows, ["product"])._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_command_refuses_words_for_numbers(tiny: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(epu, ["sweep", str(tiny), "--macs-per-pe", "8,many", "-o", str(tmp_path)])
    assert (result.exit_code, "--macs-per-pe must be numbers" in result.output) == (2, True)


def test_no_scheduler_is_refused_by_its_address(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="must be the address of a running Dask scheduler, found 'nonsense://x'"):
        run_sweep(tiny, grid_of({"product": ["QC-N"]}), tmp_path, scheduler="nonsense://x")
