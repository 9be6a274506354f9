"""``epu validate``."""

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
from epu.cli.terminal import busy, progress_bar
from epu.files import require_writable, write_bytes

GATE_FAILED = 1


@click.command("validate")
@click.argument("model", type=PATH)
@TRANGES
@SHAPES
@hardware_options
@ROUNDING
@CUSTOM_OPS
@EXCLUDE
@RUN_DIR
@click.option("--inputs", type=PATH, help="An .npz file with one array per input; without it a seeded sample.")
@click.option("--rtol", type=click.FloatRange(min=0), default=0.1, show_default=True)
@click.option("--atol", type=float, default=-1.0, show_default=True, help="-1: rtol times the largest ORT value.")
@click.option("--json", "json_path", type=PATH, help="Write all rows and the summary here.")
@click.option(
    "--rows",
    type=click.Choice(["none", "isolated", "segment", "end_to_end"]),
    default="none",
    show_default=True,
    help="Print the layer-by-layer rows of a mode.",
)
def command(
    model: Path,
    tranges: Path | None,
    shapes: tuple[str, ...],
    rounding: str,
    custom_ops: str | None,
    exclude: tuple[str, ...],
    run_dir: Path | None,
    inputs: Path | None,
    rtol: float,
    atol: float,
    json_path: Path | None,
    rows: str,
    **hw_options: Any,
) -> None:
    """Compare ONNX Runtime and the simulator on every node of the quantised model MODEL.

    Exit code 1 where a gate fails: the isolated and segment modes, and the simulator against golden.
    """
    hw_config = hardware(hw_options)
    if json_path is not None:
        require_writable(json_path)
    if run_dir is not None:
        require_writable(run_dir, folder=True)
    from epu.job import ChimeraJob
    from epu.raw_tensors import load_arrays
    from epu.reports import to_json

    arrays = load_arrays(inputs) if inputs is not None else None  # a wrong name is told before a long compilation

    job = ChimeraJob(
        model,
        hw_config,
        tranges,
        validate_iss=True,
        rounding=rounding,
        shapes=parse_shapes(shapes),
        custom_ops=custom_ops,
        exclude=exclude,
        run_directory=run_dir,
    )
    with busy(f"Compiling {model.name}"):
        job.compile()
    with progress_bar() as progress:
        result = job.validate_ort_iss(arrays, rtol=rtol, atol=atol, progress=progress)
    if json_path is not None:
        write_bytes(json_path, to_json(result.to_dict()).encode())
    click.echo(str(job))
    if rows != "none":
        click.echo(result.report(rows))
    click.echo(result.summary_table())
    click.get_current_context().exit(0 if result.passed else GATE_FAILED)
