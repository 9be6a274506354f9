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
@click.option(
    "--accuracy-drop", type=float, metavar="D", help="Leave the fewest nodes float that keep the metric within D."
)
@click.option("--metric", default="cosine", show_default=True, help="cosine, rmse or top1, against the float model.")
@click.option("--eval", "evaluation", type=PATH, help="Samples for --accuracy-drop.  [default: those of --calib]")
@click.option(
    "--labels", type=PATH, help="One class per sample (.npy): top1 counts these instead of the float model's."
)
@click.option("--ranges-only", is_flag=True, help="Write DIR/<MODEL>.tranges of the model as it is, and no model.")
def command(
    model: Path,
    output: Path,
    calib: Path | None,
    synthetic: int | None,
    shapes: tuple[str, ...],
    layout: str,
    per_channel: bool,
    exclude: tuple[str, ...],
    accuracy_drop: float | None,
    metric: str,
    evaluation: Path | None,
    labels: Path | None,
    ranges_only: bool,
) -> None:
    """Quantise the float model MODEL to symmetric int8.

    Writes DIR/<stem>_opt_sym_int8_q.onnx and its .tranges beside it. With --ranges-only the model stays what it is: a float
    model compiles with its .tranges alone, all in fixed point, and one that others quantised needs no other file.
    """
    if (calib is None) == (synthetic is None):
        found = "neither" if calib is None else "both"
        raise UserError(f"epu quantize needs one of --calib FILE.npz and --synthetic N, found {found}.")
    if accuracy_drop is None and (evaluation or labels):
        raise UserError("--eval and --labels must come with --accuracy-drop, found none. Add --accuracy-drop 0.01.")
    fixed = parse_shapes(shapes)
    if ranges_only:
        _require_only_ranges(accuracy_drop is not None, per_channel, exclude)
        _write_ranges(model, output / f"{model.name}.tranges", calib, synthetic, fixed or None)
        return
    from epu.quantization.accuracy import Target
    from epu.quantize import quadric_quantize
    from epu.reports import accuracy_table

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
            accuracy=None if accuracy_drop is None else Target(accuracy_drop, metric, _labels(labels)),
            evaluation_data=evaluation,
        )
    if result.accuracy is not None:
        click.echo(accuracy_table(result.accuracy))
    click.echo(f"Quantized model: {result.qmodel_path}")
    click.echo(f"Tensor ranges: {result.tranges_path}")


def _require_only_ranges(accuracy: bool, per_channel: bool, exclude: tuple[str, ...]) -> None:
    given = {"--accuracy-drop": accuracy, "--per-channel": per_channel, "--exclude": bool(exclude)}
    found = ", ".join(name for name, is_given in given.items() if is_given)
    if found:
        raise UserError(
            f"--ranges-only must come without options of quantisation, found {found}. Leave one of them out."
        )


def _write_ranges(
    model: Path, tranges: Path, calib: Path | None, synthetic: int | None, shapes: dict[str, tuple[int, ...]] | None
) -> None:
    from epu.quantize import compute_tensor_ranges

    with busy(f"Calibrating {model.name}"):
        compute_tensor_ranges(model, tranges, calib, synthetic=synthetic, shapes=shapes)
    click.echo(f"Tensor ranges: {tranges}")


def _labels(path: Path | None) -> list[int] | None:
    import numpy as np

    if path is None:
        return None
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UserError(
            f"--labels '{path}' must be a .npy file of integers ({error}). Write it with numpy.save."
        ) from None
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "iu":
        raise UserError(f"--labels '{path}' must hold one integer per sample, found other content. Write a 1-D array.")
    return [int(each) for each in found]
