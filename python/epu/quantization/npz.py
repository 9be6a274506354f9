"""Reads an .npz file of stacked samples one sample at a time, compressed or not."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from epu.errors import UserError

Sample = dict[str, NDArray[Any]]
Shape = tuple[int, ...]

_npy: Any = np.lib.format  # has no types


@dataclass(frozen=True)
class _Header:
    shape: Shape
    fortran: bool
    dtype: np.dtype[Any]


class NpzSamples:
    """The samples of an .npz file with one array [samples, *shape] per input, as often as wanted, one in memory.

    Raises UserError where the file lacks an array or an array does not fit.
    """

    def __init__(self, path: Path, shapes: Mapping[str, Shape]) -> None:
        self._path = path
        self._shapes = shapes
        with _open_archive(path) as archive:
            counts = {name: _count(path, archive, name, shape) for name, shape in shapes.items()}
        if len(set(counts.values())) != 1:
            found = ", ".join(f"'{name}' {count}" for name, count in counts.items())
            raise UserError(f"'{path}': every input must have as many samples as the others, found {found}.")
        self._samples = next(iter(counts.values()))

    def __iter__(self) -> Iterator[Sample]:
        with ExitStack() as stack:
            archive = stack.enter_context(_open_archive(self._path))
            streams = {name: stack.enter_context(archive.open(f"{name}.npy")) for name in self._shapes}
            dtypes = {name: _read_header(stream).dtype for name, stream in streams.items()}
            for _ in range(self._samples):
                yield {name: self._read(stream, dtypes[name], self._shapes[name]) for name, stream in streams.items()}

    def _read(self, stream: IO[bytes], dtype: np.dtype[Any], shape: Shape) -> NDArray[Any]:
        size = int(np.prod(shape)) * dtype.itemsize
        with _damage_named(self._path):
            return np.frombuffer(stream.read(size), dtype).reshape(shape)


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"'{path}' is damaged: {error}. Write it again with numpy.savez.") from error


def _open_archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except FileNotFoundError as error:
        raise UserError(f"'{path}' does not exist. Give the path of an .npz file.") from error
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"'{path}' is not an .npz file: {error}. Write one with numpy.savez.") from error


def _count(path: Path, archive: zipfile.ZipFile, name: str, shape: Shape) -> int:
    held = [entry.removesuffix(".npy") for entry in archive.namelist()]
    if name not in held:
        raise UserError(f"'{path}' has no array '{name}' for that input; it holds {', '.join(held)}.")
    with _damage_named(path), archive.open(f"{name}.npy") as stream:
        header = _read_header(stream)
    if header.shape[1:] == shape and len(header.shape) > len(shape) and not header.fortran:
        return header.shape[0]
    order = ", Fortran order" if header.fortran else ""
    raise UserError(
        f"'{path}': array '{name}' must have shape [{', '.join(map(str, ('samples', *shape)))}] in C order, "
        f"found {list(header.shape)}{order}. Stack the samples on a new first axis."
    )


def _read_header(stream: IO[bytes]) -> _Header:
    version = _npy.read_magic(stream)
    read = _npy.read_array_header_1_0 if version == (1, 0) else _npy.read_array_header_2_0
    return _Header(*read(stream))
