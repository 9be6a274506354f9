"""``epu demo``."""

from __future__ import annotations

from pathlib import Path

import click

from epu.cli.options import PATH, hardware, hardware_options
from epu.cli.terminal import progress_bar

GATE_FAILED = 1


@click.command("demo")
@click.option("-o", "--output", type=PATH, default=Path("build/demo"), show_default=True, help="Folder to fill.")
@click.option("--layers", type=click.IntRange(1, 6), default=6, show_default=True, help="Encoder layers.")
@hardware_options
def command(output: Path, layers: int, **hw_options: object) -> None:
    """Build a DETR encoder, quantise it, compile it, run it and validate it against ONNX Runtime."""
    from epu.demo import run_demo

    with progress_bar() as progress:
        passed = run_demo(output, hardware(hw_options), layers, click.echo, progress)
    click.get_current_context().exit(0 if passed else GATE_FAILED)
