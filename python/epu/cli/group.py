"""The group of commands: found by name, imported on call, their errors told in one paragraph."""

from __future__ import annotations

import importlib
import os
from typing import Any

import click

from epu.errors import EpuError

COMMANDS = {
    "quantize": "Quantise a float ONNX model to int8.",
    "compile": "Compile a quantised model for one EPU.",
    "run": "Run a compiled program on the simulator.",
    "validate": "Compare ONNX Runtime and the simulator layer by layer.",
    "bisect": "Find the first node that diverges, and cut it out.",
    "cut": "Cut a part out of an ONNX model.",
    "ops": "List the operators that run on the EPU.",
    "disasm": "Print the instructions of a program.",
    "report": "Show a run, or write it as HTML, JSON, trace or annotated model.",
    "diff": "Show what changed between two runs.",
    "demo": "Build, quantise, compile, run and validate a DETR encoder.",
    "sweep": "Compile and simulate a model for many machines.",
    "notebook": "Open the notebooks in JupyterLab.",
    "doctor": "Check the installation.",
}
DEBUG_VARIABLE = "EPU_DEBUG"


class Failure(click.ClickException):
    """A user's error as one paragraph on standard error."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class Defect(Failure):
    """An error of ours."""

    exit_code = 3


class Interrupted(Failure):
    """Ctrl-C."""

    exit_code = 130


class Commands(click.Group):
    """Imports ``epu.cli.<name>`` when the command is called; turns exceptions into one paragraph and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"epu.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        if os.environ.get(DEBUG_VARIABLE) == "1":
            return super().invoke(ctx)
        try:
            return super().invoke(ctx)
        except EpuError as error:
            raise Failure(str(error)) from None
        except KeyboardInterrupt:
            raise Interrupted("interrupted.") from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            raise Defect(_defect(error)) from None


def _defect(error: Exception) -> str:
    return (
        f"internal error, {type(error).__name__}: {error}. This is a defect of EPU. "
        f"Set {DEBUG_VARIABLE}=1 to see where, and report it."
    )


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="epu")
def epu() -> None:
    """Compile ONNX models for the EPU, run them on its simulator, and compare with ONNX Runtime.

    Exit codes: 0 done, 1 a gate of validate failed, 2 user error, 3 defect of EPU.
    """
