"""``epu disasm``."""

from __future__ import annotations

from pathlib import Path

import click

from epu.cli.options import PATH
from epu.files import write_bytes
from epu.simulator.program import load


@click.command("disasm")
@click.argument("program", type=PATH)
@click.option("-o", "--output", type=PATH, help="Write the listing here instead of printing it.")
def command(program: Path, output: Path | None) -> None:
    """Print the instructions of PROGRAM.epu, one a line."""
    listing = load(program).listing()
    if output is None:
        click.echo(listing)
        return
    write_bytes(output, listing.encode())
    click.echo(f"Wrote {output}")
