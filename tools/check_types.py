"""Runs mypy on the package as it is installed: ``epu.simulator`` lies in ``simulator/``, which mypy cannot be told.

Lays a tree of links under ``build/types``, checks it, and prints the findings with the paths of the sources.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "build" / "types"
MAIN_PACKAGE = ROOT / "python" / "epu"
SUB_PACKAGES = ("simulator", "tir_schedules", "relay_passes")


def lay_tree() -> None:
    shutil.rmtree(TREE, ignore_errors=True)
    (TREE / "epu").mkdir(parents=True)
    for source in [*MAIN_PACKAGE.iterdir(), *(ROOT / name for name in SUB_PACKAGES)]:
        (TREE / "epu" / source.name).symlink_to(source)


def source_path(line: str) -> str:
    """A finding about ``build/types/epu/…`` as one about the file that the link leads to."""
    found, colon, rest = line.partition(":")
    path = ROOT / found
    return os.path.relpath(path.resolve(), ROOT) + colon + rest if path.is_file() else line


def main() -> int:
    lay_tree()
    # What the tests of a folder share is imported by bare name, from its own folder.
    shared = [
        path for path in sorted((ROOT / "tests").glob("*/*.py")) if not path.name.startswith(("test_", "conftest"))
    ]
    bases = [TREE, *sorted({path.parent for path in shared})]
    mypy = subprocess.run(
        [sys.executable, "-m", "mypy", "build/types/epu", "tools", *map(str, shared), *sys.argv[1:]],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": os.pathsep.join(map(str, bases))},
        stdout=subprocess.PIPE,
        text=True,
    )
    print("\n".join(source_path(line) for line in mypy.stdout.splitlines()))
    return mypy.returncode


if __name__ == "__main__":
    sys.exit(main())
