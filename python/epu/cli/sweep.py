"""``epu sweep``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from epu.cli.options import PATH, ROUNDING, TRANGES
from epu.cli.terminal import progress_bar
from epu.errors import UserError
from epu.files import require_writable, whole_file

FAILED_POINTS = 1


def _numbers(kind: Callable[[str], Any]) -> Callable[[str, str], Any]:
    def parse(option: str, text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise UserError(
                f"{option} must be numbers with commas between them, found '{text}'. Example: 8,16."
            ) from None

    return parse


def _text(option: str, text: str) -> str:
    return text


OPTIONS: dict[str, tuple[Callable[[str, str], Any], str]] = {
    "product": (_text, "QC-N,QC-P,QC-U"),
    "ocm_size": (_text, "2MB,4MB,8MB"),
    "lrm_size": (_text, "4kB"),
    "macs_per_pe": (_numbers(int), "8,16"),
    "clock_freq_ghz": (_numbers(float), "0.5,1.0"),
    "ext_rd_bw": (_text, "8GBps,64GBps"),
    "ext_wr_bw": (_text, "8GBps,64GBps"),
}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _hardware(command: Any) -> Any:
    for name, (_, example) in reversed(OPTIONS.items()):
        command = click.option(_flag(name), name, metavar="LIST", help=f"Values to try, e.g. {example}.")(command)
    return command


@click.command("sweep")
@click.argument("model", type=PATH)
@TRANGES
@_hardware
@ROUNDING
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Local processes.  [default: all cores]")
@click.option("--scheduler", metavar="ADDRESS", help="Measure on the workers of this Dask scheduler, tcp://HOST:PORT.")
@click.option(
    "-o", "--output", type=PATH, required=True, metavar="DIR", help="Folder of the results; call again to go on."
)
def command(
    model: Path,
    tranges: Path | None,
    rounding: str,
    jobs: int | None,
    scheduler: str | None,
    output: Path,
    **hardware: str | None,
) -> None:
    """Compile and simulate the quantised model MODEL for every combination of the listed hardware.

    Prints the table; DIR gets sweep.json, sweep.csv and pareto.png, and keeps each point as soon as it is measured: the same
    command goes on after an interruption. Exit code 1 where a point failed; one that does not fit is only refused.
    """
    require_writable(output, folder=True)
    from epu.sweep import grid_of, run_sweep
    from epu.sweep.points import FAILED
    from epu.sweep.show import pareto_figure, table

    choices = {name: _values(name, text) for name, text in hardware.items() if text is not None}
    points = grid_of(choices or {"product": ["QC-N", "QC-P", "QC-U"]}, rounding)
    names = [name for name, _ in points[0].options]
    with progress_bar() as progress:
        rows = run_sweep(model, points, output, tranges=tranges, jobs=jobs, scheduler=scheduler, progress=progress)
    click.echo(table(rows, names))
    with whole_file(output / "pareto.png") as path:
        pareto_figure(rows, names).savefig(path, format="png", dpi=150)
    click.echo(f"Wrote {output / 'sweep.json'}, sweep.csv and pareto.png")
    click.get_current_context().exit(FAILED_POINTS if any(row["status"] == FAILED for row in rows) else 0)


def _values(name: str, text: str) -> list[Any]:
    parse = OPTIONS[name][0]
    return [parse(_flag(name), part.strip()) for part in text.split(",") if part.strip()]
