"""Matplotlib figures, data frames and notebook views of a run."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from recorded_runs import SOFTMAX, Case

from epu import frames, plots
from epu.errors import UserError
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.notebook_html import MemoryView, table
from epu.reports import CYCLE_CLASSES

ALL: list[Callable[[Any], Any]] = [
    plots.error_by_depth,
    plots.cycles_by_class,
    plots.roofline,
    plots.ocm_map,
    plots.lrm_peaks,
    plots.timeline,
    plots.ranges,
    plots.placement,
]


@pytest.mark.parametrize("plot", ALL, ids=lambda plot: plot.__name__)
def test_every_figure_is_drawn_from_job_folder_and_record(case: Case, staged: Case, plot: Callable[[Any], Any]) -> None:
    figures = [plot(source) for source in (case.job, case.folder, case.record)]
    assert len({len(figure.axes[0].get_children()) for figure in figures}) == 1
    assert plot(staged.record)._repr_png_().startswith(b"\x89PNG")


def test_bars_are_the_cycles_of_the_kernels(case: Case) -> None:
    axes = plots.cycles_by_class(case.record).axes[0]
    kernels = case.record["stages"][0]["kernels"]
    assert len(axes.patches) == len(CYCLE_CLASSES) * len(kernels)
    drawn = sum(patch.get_height() for patch in axes.patches)
    assert drawn == sum(case.record["totals"]["cycles"][name] for name in CYCLE_CLASSES)


def test_points_are_the_rows(case: Case) -> None:
    axes = plots.error_by_depth(case.record).axes[0]
    rows = [row for row in case.record["rows"] if row["Type"] == "Node" and row["S"] != "SKIPPED"]
    assert sum(len(each.get_offsets()) for each in axes.collections) == len(rows)


def test_boxes_are_the_tenants(case: Case) -> None:
    assert len(plots.ocm_map(case.record).axes[0].patches) == len(case.record["stages"][0]["ocm"])


def test_refusals_say_what_to_do(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"validate_ort_iss\(\) first"):
        plots.error_by_depth({**case.record, "rows": []})
    with pytest.raises(UserError, match="'port' or 'external', found 'x'"):
        plots.roofline(case.record, memory="x")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match="pip install matplotlib"):
        plots.ocm_map(case.record)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pip install pandas"):
        frames.nodes(case.record)


def test_frames_have_a_row_for_each_thing(case: Case, staged: Case) -> None:
    result = case.job.validation
    assert result is not None
    assert len(result.to_dataframe()) == len(result)
    assert list(frames.rows(case.folder)["Name"]) == list(result.to_dataframe()["Name"])
    kernels = staged.job.kernels_dataframe()
    assert int(kernels["total"].sum()) == staged.record["totals"]["cycles"]["total"]
    assert set(kernels["stage"]) == {stage["index"] for stage in staged.record["stages"] if stage["where"] == "EPU"}
    assert int(frames.kernels(case.record)["lrm_bytes"].max()) == case.record["totals"]["peak_lrm_bytes"]
    assert len(frames.nodes(case.job)) == len(case.record["nodes"])
    assert len(frames.tensors(case.job)) == len(case.record["tensors"])
    assert len(frames.ocm(case.job)) == len(case.record["stages"][0]["ocm"])


def parsed(html: str) -> ElementTree.Element:
    """The HTML as XML: every element closed, every text escaped."""
    return ElementTree.fromstring(re.sub(r"<br>", "<br/>", html))


def test_a_job_shows_itself(case: Case) -> None:
    html = case.job._repr_html_()
    assert f"{case.record['totals']['cycles']['total']:,}" in html
    assert "PASS" in html
    parsed(html)
    fresh = ChimeraJob(case.model, HWConfig("QC-N"))
    assert "not compiled yet" in fresh._repr_html_()


def test_a_validation_shows_verdict_and_rows_that_differ(case: Case) -> None:
    result = case.job.validation
    assert result is not None
    html = result._repr_html_()
    assert ("PASS" if result.passed else "FAIL") in html
    differ = [row for row in result if row["mode"] == "isolated" and (row["S"] != "PASS" or row["Bitwise Mismatches"])]
    assert f"{len(differ)} isolated rows" in html
    parsed(html)


def test_as_text_a_notebook_keeps_the_summary_and_not_all_rows(case: Case) -> None:
    from IPython.lib.pretty import pretty

    assert pretty(case.job.validation) == case.job.validation.summary_table()
    assert repr(case.job.placement) == f"Placement({len(case.job.placement)} EPU)"


def test_a_placement_shows_host_nodes_with_their_remedy(case: Case, staged: Case) -> None:
    assert SOFTMAX in staged.job.placement._repr_html_()
    assert "exclude" in staged.job.placement._repr_html_()
    assert "<table" not in case.job.placement._repr_html_()
    parsed(staged.job.placement._repr_html_())


def test_a_memory_map_shows_every_tenant(case: Case) -> None:
    view = case.job.memory_map
    boxes = parsed(view._repr_html_()).findall(".//{http://www.w3.org/2000/svg}title")
    assert [box.text for box in boxes] == [
        f"{each['name']} ({each['kind']}), {each['bytes']:,} bytes at {each['addr']:,}" for each in view.tenants
    ]
    assert f"{len(view.tenants)} tenants" in repr(view)
    assert "0 tenants" in repr(MemoryView({**case.record, "stages": []}))


def test_cells_are_escaped() -> None:
    html = table(("<a>",), [["<script>"], [0.1234567891]])
    assert "<script>" not in html
    assert "&lt;a&gt;" in html
    assert "0.123457" in html


def test_the_run_directory_is_enough(case: Case, tmp_path: Path) -> None:
    copied = tmp_path / "run.json"
    copied.write_bytes((case.folder / "run.json").read_bytes())
    assert len(frames.nodes(tmp_path)) == len(frames.nodes(copied)) == len(case.record["nodes"])
