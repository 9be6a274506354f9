"""``epu compile``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from epu.cli.options import (
    CUSTOM_OPS,
    EXCLUDE,
    PATH,
    ROUNDING,
    RUN_DIR,
    SHAPES,
    TRANGES,
    hardware,
    hardware_options,
    parse_shapes,
)
from epu.cli.terminal import busy
from epu.files import require_writable, write_bytes


@click.command("compile")
@click.argument("model", type=PATH)
@TRANGES
@SHAPES
@hardware_options
@ROUNDING
@CUSTOM_OPS
@EXCLUDE
@RUN_DIR
@click.option("-o", "--output", type=PATH, required=True, metavar="DIR", help="Folder of the program and its listing.")
@click.option("--json", "json_path", type=PATH, help="Write the compile report here.")
def command(
    model: Path,
    tranges: Path | None,
    shapes: tuple[str, ...],
    rounding: str,
    custom_ops: str | None,
    exclude: tuple[str, ...],
    run_dir: Path | None,
    output: Path,
    json_path: Path | None,
    **hw_options: Any,
) -> None:
    """Compile the quantised model MODEL; writes DIR/<module name>.epu and its listing .lst.

    Where nodes run on the host, it writes one file per stage, and DIR/<module name>.json, which lists them.
    """
    hw_config = hardware(hw_options)
    require_writable(output, folder=True)
    if json_path is not None:
        require_writable(json_path)
    if run_dir is not None:
        require_writable(run_dir, folder=True)
    from epu.job import ChimeraJob
    from epu.reports import to_json

    job = ChimeraJob(
        model,
        hw_config,
        tranges,
        rounding=rounding,
        shapes=parse_shapes(shapes),
        custom_ops=custom_ops,
        exclude=exclude,
        run_directory=run_dir,
    )
    with busy(f"Compiling {model.name}"):
        job.compile()
        report = to_json(job.report())
        if run_dir is not None:
            job.write_record()
    paths = job.save(output)
    if json_path is not None:
        write_bytes(json_path, report.encode())
    click.echo(str(job))
    for path in paths:
        click.echo(f"Wrote {path}")
