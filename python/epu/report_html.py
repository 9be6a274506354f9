"""The HTML report: one file that holds the record, the styles and the scripts that draw it, and asks the network for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from epu.reports import to_json

FOLDER = Path(__file__).with_name("templates")
SCRIPTS = (
    "elements.js",
    "tables.js",
    "charts.js",
    "memory.js",
    "page.js",
)  # in this order: later ones use earlier ones


def report_html(record: Mapping[str, Any]) -> str:
    """The page of a run record."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html.j2").render(
        title=f"{record['model']['file']} on {record['settings']['module']}",
        style=_text("style.css"),
        scripts=[_text(name) for name in SCRIPTS],
        record=embedded_json(record),
    )


def embedded_json(value: object) -> str:
    """JSON that can stand in a script element: it holds no ``<``, so nothing in it ends the element."""
    return to_json(value, indent=None).replace("<", "\\u003c")


def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
