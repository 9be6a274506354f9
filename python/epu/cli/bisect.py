"""``epu bisect``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from epu.cli.options import CUSTOM_OPS, PATH, ROUNDING, SHAPES, TRANGES, hardware, hardware_options, parse_shapes
from epu.cli.terminal import busy, progress_bar

DIVERGES = 1


@click.command("bisect")
@click.argument("model", type=PATH)
@TRANGES
@SHAPES
@hardware_options
@ROUNDING
@CUSTOM_OPS
@click.option("--inputs", type=PATH, help="One sample (.npz).  [default: a random one within the ranges]")
@click.option(
    "-o", "--output", type=PATH, required=True, metavar="DIR", help="Folder of the reproducer; must not exist yet."
)
def command(
    model: Path,
    tranges: Path | None,
    shapes: tuple[str, ...],
    rounding: str,
    custom_ops: str | None,
    inputs: Path | None,
    output: Path,
    **hw_options: Any,
) -> None:
    """Find the first node of the quantised model MODEL that diverges from ONNX Runtime, and cut it out.

    DIR gets the smallest part of the model that shows it, its ranges and inputs, and a script of ten lines that compares
    again. Exit code 1 where a node is wrong, 0 where none is, also where known reasons make the free run diverge.
    """
    hw_config = hardware(hw_options)
    from epu.bisect import bisect, require_absent
    from epu.divergence import told
    from epu.job import ChimeraJob
    from epu.raw_tensors import load_arrays

    require_absent(output)
    arrays = load_arrays(inputs) if inputs is not None else None  # a wrong name is told before a long compilation
    job = ChimeraJob(
        model,
        hw_config,
        tranges,
        validate_iss=True,
        rounding=rounding,
        shapes=parse_shapes(shapes),
        custom_ops=custom_ops,
    )
    with busy(f"Compiling {model.name}"):
        job.compile()
    with progress_bar() as progress:
        found = bisect(job, arrays, output, progress)
    if found is None:
        click.echo("No node diverges: every node output of the free run stays within its gate.")
        return
    click.echo(told(found.divergence))
    if found.folder is None:
        click.echo("No part of the model shows it alone, not even the whole with the same inputs; nothing was written.")
    else:
        click.echo(f"Wrote {found.folder} ({found.nodes} nodes): python {found.folder / 'reproduce.py'}")
    click.get_current_context().exit(DIVERGES if found.divergence.is_wrong else 0)
