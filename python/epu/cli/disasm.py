"""``epu disasm``."""

from __future__ import annotations

from pathlib import Path

import click

from epu.cli.options import PATH
from epu.files import write_bytes
from epu.run import load_program


@click.command("disasm")
@click.argument("program", type=PATH)
@click.option("-o", "--output", type=PATH, help="Write the listing here instead of printing it.")
def command(program: Path, output: Path | None) -> None:
    """Print the instructions of PROGRAM.epu, one a line."""
    listing = load_program(program).listing()
    if output is None:
        click.echo(listing)
        return
    write_bytes(output, listing.encode())
    click.echo(f"Wrote {output}")
