"""``epu run`` where click is not installed: an environment with NumPy and SciPy alone can run a program."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from epu.errors import EpuError
from epu.run import run_program

USER_ERROR = 2


def run(arguments: Sequence[str]) -> int:
    """The exit code of ``epu run``; any other command is refused."""
    options = _parser().parse_args(arguments)
    try:
        sys.stdout.write(run_program(options.program, options.inputs, options.output, options.raw) + "\n")
    except EpuError as error:
        if os.environ.get("EPU_DEBUG") == "1":
            raise
        sys.stderr.write(f"Error: {error}\n")
        return USER_ERROR
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="epu", description="Only `epu run` works here: install click for the rest.")
    command = parser.add_subparsers(dest="command", required=True).add_parser("run", help="run a compiled program")
    command.add_argument("program")
    command.add_argument("--inputs", required=True, help="an .npz file with one array per input, or raw .bin")
    command.add_argument("-o", "--output", required=True, help="the .npz or .bin file to write")
    command.add_argument("--raw", action="store_true", help="write the machine's integers")
    return parser
