"""The HTML report: self-contained as text, and in a real browser: it draws, sorts and filters, and the console stays silent."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import Page, chromium
from recorded_runs import Case

from epu.report_html import embedded_json, report_html

SECTIONS = [
    "summary",
    "nodes",
    "depth",
    "kernels",
    "cycles",
    "roofline",
    "timeline",
    "ocm",
    "lrm",
    "placement",
    "ranges",
]
EVIL = "</script><script>window.broken = 1</script><b>\"&'\u2028"
ADDRESS = re.compile(r"""(?:src|href)\s*=\s*["'](?!\#)|url\(|@import|\bfetch\(|XMLHttpRequest|WebSocket|\bimport\(""")


def with_evil_names(record: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(record)
    changed["model"]["file"] = EVIL
    for each in (changed["rows"][0], changed["nodes"][0], changed["tensors"][0], changed["stages"][0]["kernels"][0]):
        each["Name" if "Name" in each else "name"] = EVIL
    changed["nodes"][0]["reason"] = EVIL
    return changed


def test_the_page_names_nothing_outside_itself(case: Case) -> None:
    page = report_html(case.record)
    code = page.replace(embedded_json(case.record), "")
    assert ADDRESS.findall(code) == []
    assert "default-src 'none'" in code
    assert set(re.findall(r"https?://\S+", code)) == {'http://www.w3.org/2000/svg",'}  # a name, not an address


def test_names_cannot_leave_the_data(case: Case) -> None:
    page = report_html(with_evil_names(case.record))
    assert "<script>window.broken" not in page
    assert page.count("</script>") == report_html(case.record).count("</script>")
    data = page.split('id="record">')[1].split("</script>")[0]
    assert json.loads(data)["model"]["file"] == EVIL


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    program = chromium()
    if program is None:
        pytest.skip("no Chromium found: install chromium, or name one in EPU_CHROMIUM")
    with Page(program, tmp_path_factory.mktemp("profile")) as page:
        yield page


def opened(browser: Page, record: dict[str, Any], path: Path) -> Page:
    path.write_text(report_html(record), encoding="utf-8")
    browser.messages.clear()
    browser.requests.clear()
    browser.open(path)
    browser.settle()
    return browser


@pytest.fixture
def page(browser: Page, case: Case, tmp_path: Path) -> Page:
    return opened(browser, case.record, tmp_path / "report.html")


def choose(page: Page, selector: str, value: str) -> None:
    node = f"document.querySelector({selector!r})"
    page.run(f"{node}.value = {value!r}; {node}.dispatchEvent(new Event('change')); 0")
    page.settle()


def cells(page: Page, section: str, column: int) -> list[str]:
    found: list[str] = page.run(
        f"[...document.querySelectorAll('#{section} tbody tr')].map(row => row.cells[{column}].textContent)"
    )
    return found


def count(page: Page, selector: str) -> int:
    found: int = page.run(f"document.querySelectorAll({selector!r}).length")
    return found


def test_it_draws_every_section_in_silence_and_asks_for_nothing(page: Page, case: Case, tmp_path: Path) -> None:
    assert page.run("document.body.dataset.drawn") == "yes"
    assert page.run("[...document.querySelectorAll('section')].map(each => each.id)") == SECTIONS
    rows = [row for row in case.record["rows"] if row["Type"] == "Node" and row["S"] != "SKIPPED"]
    assert count(page, "#depth circle.point") == len(rows)
    (stage,) = case.record["stages"]
    assert count(page, "#cycles g.kernel") == len(stage["kernels"])
    assert count(page, "#ocm g.tenant") == len(stage["ocm"])
    assert count(page, "#lrm rect.peak") == len(stage["kernels"])
    assert count(page, "#lrm g.tenant") > 0
    assert 0 < count(page, "#roofline .point") <= len(stage["kernels"])
    assert count(page, "#roofline .roof") == 2
    assert f"{case.record['totals']['cycles']['total']:,}" in page.run("document.getElementById('summary').textContent")
    page.picture(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 50_000  # an empty page is a tenth of that
    assert page.messages == []
    assert [url for url in page.requests if not url.startswith("file:")] == []


def test_the_longest_kernel_stands_first_by_name(page: Page, case: Case) -> None:
    (stage,) = case.record["stages"]
    longest = max(stage["kernels"], key=lambda each: each["cycles"]["total"])
    assert cells(page, "kernels", 0)[0] == longest["name"]
    heads = page.run("[...document.querySelectorAll('#kernels th')].map(each => each.textContent)")
    for title, name in (("Cycles", "total"), ("compute", "compute"), ("data_ocm", "data_ocm")):
        assert cells(page, "kernels", heads.index(title))[0] == f"{longest['cycles'][name]:,}"


def test_a_failed_run_shows_its_failures_first(browser: Page, case: Case, tmp_path: Path) -> None:
    record = copy.deepcopy(case.record)
    wrong = next(row for row in record["rows"] if row["mode"] == "segment")
    wrong["S"] = "FAIL"
    record["validation"]["failures"] = ["segment: one row"]
    page = opened(browser, record, tmp_path / "failed.html")
    assert cells(page, "nodes", 1) == [wrong["Name"]]
    assert page.run("document.querySelector('#summary p.FAIL').textContent") == "segment: one row"


def test_no_mark_is_drawn_outside_its_picture(page: Page) -> None:
    outside = page.run(
        """[...document.querySelectorAll('svg circle, svg rect, svg polyline')].filter((mark) => {
          const [a, b] = [mark.getBoundingClientRect(), mark.ownerSVGElement.getBoundingClientRect()];
          return !(a.left >= b.left - 6 && a.right <= b.right + 6 && a.top >= b.top - 6 && a.bottom <= b.bottom + 6);
        }).length"""
    )
    assert outside == 0


def test_the_timeline_has_paint_and_zooms(page: Page, case: Case) -> None:
    painted = """(() => {
      const canvas = document.querySelector('#timeline canvas');
      const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      let found = 0;
      for (let index = 3; index < pixels.length; index += 4) found += pixels[index] > 0;
      return found / (pixels.length / 4);
    })()"""
    assert page.run(painted) > 0.1
    canvas = "document.querySelector('#timeline canvas')"
    whole = page.run(f"{canvas}.dataset.view")
    assert whole == f"0 {case.record['totals']['cycles']['total']}"
    page.run(f"{canvas}.dispatchEvent(new WheelEvent('wheel', {{deltaY: -100, clientX: 600, cancelable: true}})); 0")
    zoomed = page.run(f"{canvas}.dataset.view")
    assert zoomed != whole
    page.run(f"{canvas}.dispatchEvent(new MouseEvent('dblclick')); 0")
    assert page.run(f"{canvas}.dataset.view") == whole
    assert page.messages == []


def test_the_table_sorts_both_ways(page: Page, case: Case) -> None:
    head = "document.querySelectorAll('#nodes th')[8]"  # PSNR
    isolated = [row["PSNR (dB)"] for row in case.record["rows"] if row["mode"] == "isolated"]

    def shown() -> list[float]:
        return [float(text.replace("∞", "inf").replace("−", "-")) for text in cells(page, "nodes", 8)]

    page.run(f"{head}.click()")
    assert page.run(f"{head}.getAttribute('aria-sort')") == "descending"
    assert shown() == pytest.approx(sorted(isolated, reverse=True), rel=1e-3)
    page.run(f"{head}.click()")
    assert shown() == pytest.approx(sorted(isolated), rel=1e-3)
    name = "document.querySelectorAll('#nodes th')[1]"
    page.run(f"{name}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter'}})); 0")
    assert page.run(f"{name}.getAttribute('aria-sort')") == "ascending"
    assert len(cells(page, "nodes", 1)) == len(isolated)
    assert page.messages == []


def test_the_table_filters_by_text_mode_and_state(page: Page, case: Case) -> None:
    rows = case.record["rows"]
    choose(page, "#nodes select[aria-label=Mode]", "")
    assert len(cells(page, "nodes", 1)) == len(rows)
    page.run("document.querySelector('#nodes input').value = 'SOFTMAX'")
    page.run("document.querySelector('#nodes input').dispatchEvent(new Event('input'))")
    named = [row for row in rows if "softmax" in (row["Name"] + row["op"]).lower()]
    assert len(cells(page, "nodes", 1)) == len(named) > 0
    choose(page, "#nodes select[aria-label=Mode]", "segment")
    assert set(cells(page, "nodes", 3)) == {"segment"}
    choose(page, "#nodes select[aria-label=State]", "differ")
    expected = [row for row in named if row["mode"] == "segment" and row["Bitwise Mismatches"]]
    assert len(cells(page, "nodes", 1)) == len(expected)
    assert f"{len(expected)} of {len(rows)}" in page.run("document.querySelector('#nodes .controls').textContent")
    assert page.messages == []


def test_a_mismatch_that_nothing_explains_is_the_only_red_row(browser: Page, case: Case, tmp_path: Path) -> None:
    record = copy.deepcopy(case.record)
    for row in record["rows"]:
        row["reasons"] = {"tie": 3}
    record["rows"][4]["reasons"] = {"tie": 3, "unexplained": 1}
    page = opened(browser, record, tmp_path / "red.html")
    assert page.run("[...document.querySelectorAll('#nodes tr.red')].map(row => row.cells[1].textContent)") == [
        record["rows"][4]["Name"]
    ]
    choose(page, "#nodes select[aria-label=State]", "unexplained")
    assert cells(page, "nodes", 1) == [record["rows"][4]["Name"]]


def test_other_measures_orders_and_memories_draw(page: Page) -> None:
    for selector, values in (
        ("#depth select", ["mismatches", "lsb", "psnr"]),
        ("#cycles select", ["longest", "program"]),
        ("#roofline select", ["external", "port"]),
        ("#lrm select", ["0", "1"]),
        ("#ranges select", ["clipped", ""]),
        ("#placement select", ["host", "EPU"]),
    ):
        for value in values:
            choose(page, selector, value)
    assert count(page, "#roofline .roof") == 2
    assert "NaN" not in page.run("document.getElementById('sections').innerHTML")
    assert page.messages == []


def test_pointing_at_a_kernel_tells_its_numbers(page: Page, case: Case) -> None:
    move = "new MouseEvent('mousemove', {bubbles: true, clientX: 9, clientY: 9})"
    page.run(f"document.querySelector('#cycles g.kernel').dispatchEvent({move})")
    text = page.run("document.getElementById('tip').textContent")
    assert case.record["stages"][0]["kernels"][0]["name"] in text
    assert not page.run("document.getElementById('tip').hidden")


def test_evil_names_are_text(browser: Page, case: Case, tmp_path: Path) -> None:
    page = opened(browser, with_evil_names(case.record), tmp_path / "evil.html")
    assert page.run("window.broken") is None
    assert EVIL in cells(page, "nodes", 1)
    assert page.messages == []


def test_a_run_without_validation_and_one_with_the_host_draw(
    browser: Page, case: Case, staged: Case, tmp_path: Path
) -> None:
    plain = {**case.record, "validation": None, "rows": []}
    page = opened(browser, plain, tmp_path / "plain.html")
    assert page.run("[...document.querySelectorAll('section')].map(each => each.id)") == [
        name for name in SECTIONS if name not in ("nodes", "depth")
    ]
    assert page.messages == []
    page = opened(browser, staged.record, tmp_path / "staged.html")
    assert count(page, "#cycles g.kernel") == sum(len(stage.get("kernels", ())) for stage in staged.record["stages"])
    assert "host" in cells(page, "placement", 2)
    assert page.messages == []


def test_five_hundred_nodes_in_three_modes_are_quick(browser: Page, case: Case, tmp_path: Path) -> None:
    record = copy.deepcopy(case.record)
    record["rows"] = [{**row, "Name": f"{row['Name']}#{n}"} for n in range(9) for row in case.record["rows"]][:1500]
    page = opened(browser, record, tmp_path / "long.html")
    choose(page, "#nodes select[aria-label=Mode]", "")
    page.run("window.started = performance.now(); document.querySelectorAll('#nodes th')[1].click()")
    took = page.run("performance.now() - window.started")
    assert len(cells(page, "nodes", 1)) == 1500
    assert took < 5000  # milliseconds; a tenth of that on a busy machine
    assert page.messages == []
