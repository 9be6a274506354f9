"""``epu doctor``."""

from __future__ import annotations

import click

PROBLEM_FOUND = 2


@click.command("doctor")
def command() -> None:
    """Show versions, the door to TVM and the CPU; name what is wrong and what to do."""
    from epu.doctor import examine
    from epu.reports import grid

    facts, problems = examine()
    click.echo(grid(facts))
    for problem in problems:
        click.echo(f"PROBLEM: {problem}")
    click.echo("No problem found." if not problems else f"{len(problems)} problem(s) found.")
    click.get_current_context().exit(PROBLEM_FOUND if problems else 0)
