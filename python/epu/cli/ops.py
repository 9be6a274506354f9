"""``epu ops``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from epu.cli.options import PATH


@click.command("ops")
@click.argument("model", type=PATH, required=False)
def command(model: Path | None) -> None:
    """List the operators of the EPU with their limits, or count those of MODEL."""
    from epu.operators import OPERATORS
    from epu.reports import grid

    if model is not None:
        click.echo(_counted(model))
        return
    rows = ((row.name, row.family, "\n".join(limit.sentence for limit in row.limits)) for row in OPERATORS.values())
    click.echo(grid(sorted(rows), ("Operator", "Kernel family", "Limits")))


def _counted(model: Path) -> str:
    """Op types of the model, how often each occurs, and whether the EPU has a row for it."""
    from epu.onnx_util import load_model
    from epu.operators import OPERATORS
    from epu.reports import grid

    counts = Counter(node.op_type for node in load_model(model, allow_dynamic=True).graph.node)
    rows = [(op, count, "EPU" if op in OPERATORS else "no row of its own") for op, count in counts.most_common()]
    return grid(rows, ("Operator", "Nodes", "Runs on"))
