"""``epu report``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from epu.cli.options import PATH
from epu.files import write_bytes

METRICS = ("cycles", "psnr", "mismatches", "lsb")


@click.command("report")
@click.argument("run_dir", type=PATH)
@click.option(
    "--html",
    type=PATH,
    is_flag=False,
    flag_value=Path("report.html"),
    metavar="[FILE]",
    help="Write one HTML file that needs no network; without FILE RUN_DIR/report.html.",
)
@click.option("--json", "json_path", type=PATH, metavar="FILE", help="Write the run record.")
@click.option("--trace", type=PATH, metavar="FILE", help="Write the timeline for Perfetto or chrome://tracing.")
@click.option(
    "--onnx", type=PATH, metavar="FILE", help="Write the model with each node's metrics as metadata (Netron)."
)
@click.option("--model", type=PATH, metavar="FILE", help="The model that ran, where --onnx does not find it.")
@click.option("--model-explorer", type=PATH, metavar="FILE", help="Write node data of Model Explorer.")
@click.option("--metric", type=click.Choice(METRICS), default="cycles", show_default=True, help="Of --model-explorer.")
def command(
    run_dir: Path,
    html: Path | None,
    json_path: Path | None,
    trace: Path | None,
    onnx: Path | None,
    model: Path | None,
    model_explorer: Path | None,
    metric: str,
) -> None:
    """Show the run whose record is in RUN_DIR, or write it as a page, as data, or for a viewer."""
    from epu.run_record import load_record

    record = load_record(run_dir)
    if html == Path("report.html"):
        html = (run_dir if run_dir.is_dir() else run_dir.parent) / html
    if html is not None:
        from epu.report_html import report_html

        _write(html, report_html(record).encode())
    if json_path is not None:
        _write_json(json_path, record)
    if trace is not None:
        from epu.trace import trace_of

        _write_json(trace, trace_of(record))
    if onnx is not None:
        _write(onnx, _annotated(record, run_dir, model))
    if model_explorer is not None:
        from epu.annotate import model_explorer as node_data

        _write_json(model_explorer, node_data(record, metric))
    if not any((html, json_path, trace, onnx, model_explorer)):
        from epu.record_text import record_text

        click.echo(record_text(record))


def _annotated(record: dict[str, Any], run_dir: Path, given: Path | None) -> bytes:
    import onnx

    from epu.annotate import annotated, find_model

    model = onnx.load_model(find_model(record, run_dir, given))  # as it is: ours would rewrite it
    return annotated(model, record).SerializeToString(deterministic=True)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    from epu.reports import to_json

    _write(path, to_json(value, indent=None).encode())


def _write(path: Path, data: bytes) -> None:
    write_bytes(path, data)
    click.echo(f"Wrote {path}")
