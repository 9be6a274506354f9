"""The ``epu`` command. Starts light: each command is imported when it is called, and ``epu run`` needs NumPy alone."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from types import FrameType

TERMINATED = 128 + signal.SIGTERM


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 a gate of validate failed, 2 user error, 3 defect of EPU."""
    exit_on_terminate()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        import click  # noqa: F401
    except ModuleNotFoundError:  # only NumPy and SciPy are here: enough to run a program
        from epu.cli.bare import run

        sys.exit(run(given))
    from epu.cli.group import epu

    epu.main(args=given, prog_name="epu")


def exit_on_terminate() -> None:
    """Let SIGTERM (``timeout``, a scheduler) end the program as an exit does, so that unfinished files are removed."""
    signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(TERMINATED)
