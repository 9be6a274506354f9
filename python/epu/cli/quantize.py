"""``epu quantize``."""

from __future__ import annotations

from pathlib import Path

import click

from epu.cli.options import PATH, SHAPES, parse_shapes
from epu.cli.terminal import busy
from epu.errors import UserError


@click.command("quantize")
@click.argument("model", type=PATH)
@click.option("-o", "--output", type=PATH, required=True, metavar="DIR", help="Folder of the files written.")
@click.option("--calib", type=PATH, help="Samples: an .npz file, one array per input, samples on a new first axis.")
@click.option("--synthetic", type=click.IntRange(min=1), metavar="N", help="Calibrate with N random samples.")
@SHAPES
@click.option("--format", "layout", type=click.Choice(["qoperator", "qdq"]), default="qoperator", show_default=True)
@click.option("--per-channel", is_flag=True, help="One weight scale per output channel.")
@click.option("--exclude", multiple=True, metavar="NODE_OR_OP", help="Keep a node or an op type float; repeatable.")
def command(
    model: Path,
    output: Path,
    calib: Path | None,
    synthetic: int | None,
    shapes: tuple[str, ...],
    layout: str,
    per_channel: bool,
    exclude: tuple[str, ...],
) -> None:
    """Quantise the float model MODEL to symmetric int8.

    Writes DIR/<stem>_opt_sym_int8_q.onnx and its .tranges beside it.
    """
    if (calib is None) == (synthetic is None):
        found = "neither" if calib is None else "both"
        raise UserError(f"epu quantize needs one of --calib FILE.npz and --synthetic N, found {found}.")
    fixed = parse_shapes(shapes)
    from epu.quantize import quadric_quantize

    with busy(f"Quantising {model.name}"):
        result = quadric_quantize(
            model,
            num_images=synthetic or 1,
            synthetic_input=synthetic is not None,
            output_folder=output,
            calibration_data=calib,
            shapes=fixed or None,
            format=layout,
            per_channel=per_channel,
            exclude=exclude,
        )
    click.echo(f"Quantized model: {result.qmodel_path}")
    click.echo(f"Tensor ranges: {result.tranges_path}")
