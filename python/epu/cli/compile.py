"""``epu compile``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from epu.cli.options import CUSTOM_OPS, PATH, ROUNDING, SHAPES, TRANGES, hardware, hardware_options, parse_shapes
from epu.cli.terminal import busy
from epu.files import write_bytes


@click.command("compile")
@click.argument("model", type=PATH)
@TRANGES
@SHAPES
@hardware_options
@ROUNDING
@CUSTOM_OPS
@click.option("-o", "--output", type=PATH, required=True, metavar="DIR", help="Folder of the program and its listing.")
@click.option("--json", "json_path", type=PATH, help="Write the compile report here.")
def command(
    model: Path,
    tranges: Path | None,
    shapes: tuple[str, ...],
    rounding: str,
    custom_ops: str | None,
    output: Path,
    json_path: Path | None,
    **hw_options: Any,
) -> None:
    """Compile the quantised model MODEL; writes DIR/<module name>.epu and its listing .lst."""
    hw_config = hardware(hw_options)
    from epu.job import ChimeraJob
    from epu.reports import to_json

    job = ChimeraJob(model, hw_config, tranges, rounding=rounding, shapes=parse_shapes(shapes), custom_ops=custom_ops)
    with busy(f"Compiling {model.name}"):
        job.compile()
        report = to_json(job.report())
    paths = job.save(output)
    if json_path is not None:
        write_bytes(json_path, report.encode())
    click.echo(str(job))
    for path in paths:
        click.echo(f"Wrote {path}")
