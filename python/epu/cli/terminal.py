"""Progress on a terminal; nothing where standard error is not one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """Yield what to call with (what, done, of); None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True, redirect_stdout=False) as bars:
        tasks = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield show


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show that ``what`` is going on, and for how long."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bars:
        bars.add_task(what, total=None)
        yield
