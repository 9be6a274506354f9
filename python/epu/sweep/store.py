"""The folder of a sweep: one JSON file per measured point, so that a sweep that was stopped goes on where it was."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from epu.errors import UserError
from epu.files import write_bytes
from epu.sweep.points import FAILED, Row

POINTS = "points"


class Store:
    """Rows by key; a row of status "failed" is told but not kept, so that the next sweep tries again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def row(self, key: str) -> Row | None:
        """The row of that key; None where it was not measured yet. Raises UserError for a file that is no row."""
        path = self._path(key)
        if not path.is_file():
            return None
        try:
            found: Row = json.loads(path.read_text())
            assert found["status"] != FAILED
        except (ValueError, TypeError, KeyError, AssertionError):
            raise UserError(f"'{path}' must be a row of a sweep, found other content. Delete it.") from None
        return found

    def keep(self, key: str, row: Row) -> None:
        if row["status"] != FAILED:
            write_bytes(self._path(key), json.dumps(row, indent=1).encode())

    def _path(self, key: str) -> Path:
        return self.folder / POINTS / f"{key}.json"


def as_csv(rows: Sequence[Row]) -> str:
    """All rows with the columns of all of them."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
