"""``epu diff``."""

from __future__ import annotations

from pathlib import Path

import click

from epu.cli.options import PATH
from epu.files import write_bytes


@click.command("diff")
@click.argument("run_a", type=PATH)
@click.argument("run_b", type=PATH)
@click.option(
    "--json", "json_path", type=PATH, is_flag=False, flag_value=Path("-"), metavar="[FILE]", help="All changes as JSON."
)
def command(run_a: Path, run_b: Path, json_path: Path | None) -> None:
    """Show what changed between two runs: settings, values, cycles, memory, placement, ranges."""
    from epu.diff import diff, diff_text
    from epu.reports import to_json
    from epu.run_record import load_record

    changes = diff(load_record(run_a), load_record(run_b))
    if json_path is None:
        click.echo(diff_text(changes, (str(run_a), str(run_b))))
    elif json_path == Path("-"):
        click.echo(to_json(changes))
    else:
        write_bytes(json_path, to_json(changes).encode())
        click.echo(f"Wrote {json_path}")
