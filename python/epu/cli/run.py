"""``epu run``: neither TVM nor onnx."""

from __future__ import annotations

from pathlib import Path

import click

from epu.cli.options import PATH
from epu.cli.terminal import busy
from epu.run import run_program


@click.command("run")
@click.argument("program", type=PATH)
@click.option(
    "--inputs", type=PATH, required=True, help="An .npz file, or raw integers: a .bin file or a folder of them."
)
@click.option(
    "-o",
    "--output",
    type=PATH,
    required=True,
    help="The .npz or .bin file to write, or a folder that is there.",
)
@click.option("--raw", is_flag=True, help="Write the machine's integers instead of ONNX Runtime's types.")
def command(program: Path, inputs: Path, output: Path, raw: bool) -> None:
    """Run the compiled program PROGRAM.epu on the simulator, or the job whose stages PROGRAM.json lists.

    An .npz file has one array per input. Raw integers of the machine are the .bin file of a single tensor, or a folder of .bin
    files as in a run directory; --raw puts them into an .npz file.
    """
    with busy(f"Running {program.name}"):
        report = run_program(program, inputs, output, raw)
    click.echo(report)
