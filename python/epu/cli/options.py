"""Options that several commands share: hardware, shapes, paths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from epu.errors import UserError
from epu.hw_config import HWConfig

Command = TypeVar("Command", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
ROUNDINGS = ("exact", "ort")

HARDWARE = (
    click.option("--product", default="QC-U", show_default=True, help="QC-N, QC-P or QC-U."),
    click.option("--ocm-size", metavar="SIZE", help='On-chip memory, e.g. "8MB".'),
    click.option("--lrm-size", metavar="SIZE", help='Memory of one PE, e.g. "4kB".'),
    click.option("--macs-per-pe", type=int, metavar="N", help="8 or 16."),
    click.option("--clock-freq-ghz", type=float, metavar="GHZ", help="Clock."),
    click.option("--ext-rd-bw", metavar="RATE", help='External read bandwidth, e.g. "64GBps".'),
    click.option("--ext-wr-bw", metavar="RATE", help="External write bandwidth."),
    click.option("--num-cores", type=int, default=1, show_default=True, help="Number of cores."),
)

SHAPES = click.option(
    "--shape", "shapes", multiple=True, metavar="NAME=1,3,224,224", help="Fix a dynamic input; repeatable."
)
TRANGES = click.option("--tranges", type=PATH, help="Ranges of the float tensors, as epu quantize writes them.")
RUN_DIR = click.option("--run-dir", type=PATH, metavar="DIR", help="Folder of the run record, which epu report reads.")
ROUNDING = click.option(
    "--rounding", type=click.Choice(ROUNDINGS), default="exact", show_default=True, help="ort: as ONNX Runtime rounds."
)

CUSTOM_OPS = click.option(
    "--custom-ops", metavar="PATH", help="Python file or module of the model's custom operators (docs/custom_ops.md)."
)


EXCLUDE = click.option("--exclude", multiple=True, metavar="NODE", help="Run this ONNX node on the host; repeatable.")


def hardware_options(command: Command) -> Command:
    """Add the options of HWConfig."""
    for option in reversed(HARDWARE):
        command = option(command)
    return command


def hardware(values: dict[str, Any]) -> HWConfig:
    """The HWConfig of the options; absent ones are the product's defaults."""
    return HWConfig(**values)


def parse_shapes(texts: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """``("x=1,3,224,224",)`` → ``{"x": (1, 3, 224, 224)}``. Raises UserError for anything else."""
    return dict(_shape(text) for text in texts)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = text.rpartition("=")
    parts = [part.strip() for part in sizes.split(",")]
    if not name or not all(part.isdecimal() for part in parts):
        raise UserError(f"--shape must be NAME=SIZE,SIZE,…, found '{text}'. Example: --shape x=1,3,224,224.")
    return name, tuple(map(int, parts))
