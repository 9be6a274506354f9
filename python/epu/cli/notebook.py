"""``epu notebook``."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from epu.cli.options import PATH
from epu.errors import UserError

WORKING_FOLDER = Path("epu_notebooks")


@click.command("notebook")
@click.argument("name", required=False)
@click.option("--list", "listing", is_flag=True, help="List the notebooks.")
@click.option("--copy", "folder", type=PATH, metavar="DIR", help="Copy into DIR and start nothing.")
@click.option("--no-browser", is_flag=True, help="Start the server and print its address.")
@click.option("--jupyter", "more", multiple=True, metavar="OPTION", help="Give JupyterLab this option; repeatable.")
def command(name: str | None, listing: bool, folder: Path | None, no_browser: bool, more: tuple[str, ...]) -> None:
    """Copy the notebook NAME, or all of them, to epu_notebooks and open JupyterLab there.

    A copy that is there already is opened as it is. Options of JupyterLab: --jupyter=--port=9000 --jupyter=--allow-root.
    """
    from epu.notebook_files import copy_notebooks, notebooks, title
    from epu.reports import grid

    if listing:
        click.echo(grid([(stem, title(path)) for stem, path in notebooks().items()], ("Notebook", "About")))
        return
    if folder is None:
        _require_jupyter()
    copies = copy_notebooks(name, folder or WORKING_FOLDER)
    for path, is_new in copies:
        click.echo(f"{'Copied' if is_new else 'Kept'} {path}")
    if folder is None:
        _start(copies[0][0] if name else WORKING_FOLDER, [*(["--no-browser"] if no_browser else []), *more])


def _require_jupyter() -> None:
    missing = [name for name in ("jupyterlab", "ipykernel") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"epu notebook needs {' and '.join(missing)}, not installed here. Install it: pip install 'epu[notebooks]', or take "
            "the files elsewhere: epu notebook --copy DIR."
        )


def _start(target: Path, options: Sequence[str]) -> None:
    """Becomes JupyterLab, with the interpreter that has EPU."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", str(target), *options])
