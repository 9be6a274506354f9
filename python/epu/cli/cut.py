"""``epu cut``."""

from __future__ import annotations

from pathlib import Path

import click

from epu.cli.options import PATH


@click.command("cut")
@click.argument("model", type=PATH)
@click.option("--before", multiple=True, metavar="TENSOR", help="Becomes an input; repeatable.")
@click.option("--after", multiple=True, required=True, metavar="TENSOR", help="Becomes an output; repeatable.")
@click.option("-o", "--output", type=PATH, required=True, help="The ONNX file to write.")
def command(model: Path, before: tuple[str, ...], after: tuple[str, ...], output: Path) -> None:
    """Write the part of MODEL between the tensors --before and --after."""
    from epu.onnx_util import cut_onnx, load_model, save_model

    part = cut_onnx(load_model(model, allow_dynamic=True), cut_before=list(before), cut_after=list(after))
    save_model(part, output)
    click.echo(f"Wrote {output}: {len(part.graph.node)} nodes")
