"""Files appear whole or not at all: written under a temporary name in the same folder, then renamed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from epu.errors import UserError


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it becomes ``path``, on any error it is removed.

    Creates the folder where absent. Raises UserError if the file cannot be written.
    """
    target = Path(path)
    temporary = target.with_name(f".{secrets.token_hex(4)}.{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _removed_on_error(temporary):
            yield temporary
            os.replace(temporary, target)
    except OSError as error:
        raise UserError(f"'{target}' cannot be written: {error.strerror}. Choose a folder you may write to.") from error


@contextmanager
def _removed_on_error(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def require_writable(path: str | os.PathLike[str], folder: bool = False) -> None:
    """Refuse a file (or ``folder``) that cannot be written, before the work whose result it is to hold.

    Raises UserError for a path that is the other kind, below a file, or where writing is forbidden.
    """
    target = Path(path)
    if target.exists() and target.is_dir() != folder:
        raise UserError(f"'{target}' must be a {'folder' if folder else 'file'}, found the other. Choose another name.")
    place = next(each for each in (target, *target.absolute().parents) if each.exists())
    if (place != target and not place.is_dir()) or not os.access(place, os.W_OK):
        raise UserError(f"'{target}' cannot be written: '{place}' allows none. Choose a folder you may write to.")


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write ``data`` to ``path``, whole or not at all. Raises UserError if the folder cannot be written."""
    with whole_file(path) as temporary:
        temporary.write_bytes(data)
