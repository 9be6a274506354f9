"""``epu cut``."""

from __future__ import annotations

from pathlib import Path

import click

from epu.cli.options import PATH
from epu.errors import UserError


@click.command("cut")
@click.argument("model", type=PATH)
@click.option("--before", multiple=True, metavar="TENSOR", help="Becomes an input; repeatable. [default: the inputs]")
@click.option("--after", multiple=True, metavar="TENSOR", help="Becomes an output; repeatable. [default: the outputs]")
@click.option("-o", "--output", type=PATH, required=True, help="The ONNX file to write.")
def command(model: Path, before: tuple[str, ...], after: tuple[str, ...], output: Path) -> None:
    """Write the part of MODEL between the tensors --before and --after."""
    from epu.onnx_shapes import graph_inputs
    from epu.onnx_util import cut_onnx, load_model, save_model

    if not before and not after:
        raise UserError("epu cut needs a tensor: give --before TENSOR, --after TENSOR or both.")
    whole = load_model(model, allow_dynamic=True)
    inputs = list(before) or [value.name for value in graph_inputs(whole)]
    outputs = list(after) or [value.name for value in whole.graph.output]
    part = cut_onnx(whole, cut_before=inputs, cut_after=outputs)
    save_model(part, output)
    click.echo(f"Wrote {output}: {len(part.graph.node)} nodes")
