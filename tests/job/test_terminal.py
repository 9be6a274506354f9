"""Progress is shown on a terminal and only there."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator

CODE = """
from epu.cli.terminal import busy, progress_bar
with busy("Working"): pass
with progress_bar() as progress:
    if progress:
        progress("isolated", 1, 2)
        progress("isolated", 2, 2)
    print("shown" if progress else "plain")
"""


def test_plain_where_standard_error_is_no_terminal() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("plain\n", "")


def _lines(control: int) -> Iterator[str]:
    """All that was written to a terminal whose last writer has gone."""
    while True:
        try:
            yield os.read(control, 65536).decode()
        except OSError:
            return


def test_bars_on_a_terminal() -> None:
    control, terminal = pty.openpty()
    process = subprocess.run(
        [sys.executable, "-c", CODE],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm"},
        text=True,
        check=True,
    )
    os.close(terminal)
    written = "".join(_lines(control))
    os.close(control)
    assert process.stdout == "shown\n"
    assert "Working" in written
    assert "isolated" in written
