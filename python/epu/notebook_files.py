"""The notebooks that come with EPU: where they are installed, and working copies of them."""

from __future__ import annotations

import json
from pathlib import Path

from epu.errors import UserError
from epu.files import write_bytes
from epu.names import near

HERE = Path(__file__).resolve().parent
FOLDERS = (HERE / "notebooks", HERE.parents[1] / "notebooks")  # in a wheel; in a checkout
SUFFIX = ".ipynb"


def notebooks() -> dict[str, Path]:
    """Each notebook's name → its file. Raises UserError where none is installed."""
    for folder in FOLDERS:
        found = {path.stem: path for path in sorted(folder.glob(f"*{SUFFIX}"))}
        if found:
            return found
    raise UserError(f"no notebooks in {FOLDERS[0]}. Install EPU again.")


def title(path: Path) -> str:
    """The first heading of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    lines = "".join("".join(cell["source"]) for cell in cells[:1]).splitlines()
    return lines[0].lstrip("# ") if lines else ""


def chosen(name: str | None) -> dict[str, Path]:
    """The notebook of that name, with or without its suffix, or all. Raises UserError for an unknown name."""
    found = notebooks()
    if name is None:
        return found
    stem = name.removesuffix(SUFFIX)
    if stem not in found:
        raise UserError(f"there is no notebook '{name}'. {near(stem, found)} epu notebook --list shows all.")
    return {stem: found[stem]}


def copy_notebooks(name: str | None, folder: Path) -> list[tuple[Path, bool]]:
    """Copy one notebook or all into ``folder``; each copy, and whether it is new.

    A notebook that is there already may hold the user's work and stays as it is.
    """
    copies = []
    for source in chosen(name).values():
        copy = folder / source.name
        is_new = not copy.exists()
        if is_new:
            write_bytes(copy, source.read_bytes())
        copies.append((copy, is_new))
    return copies
