"""Red on a terminal, plain text elsewhere."""

from __future__ import annotations

import os
import sys

RED, PLAIN = "\x1b[31m", "\x1b[0m"


def red(text: str) -> str:
    """The text in red where standard output is a terminal and NO_COLOR is not set."""
    return f"{RED}{text}{PLAIN}" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text
