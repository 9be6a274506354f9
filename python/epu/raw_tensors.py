"""Tensors between users and programs: .npz files, reals to the raw integers of a buffer and back, raw .bin files.

Imports NumPy and the simulator only, because ``epu run`` works with nothing else.
"""

from __future__ import annotations

import io
import math
import os
import re
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.errors import UserError
from epu.files import whole_file
from epu.simulator.fixed_point import NUMPY_DTYPE, decode_raw, encode_real
from epu.simulator.program import Buffer

Arrays = dict[str, NDArray[Any]]

UNIX = 3  # zip's number for the system that made a file


def load_arrays(path: str | os.PathLike[str]) -> Arrays:
    """The arrays of an .npz file by name. Raises UserError for anything else, and for pickled objects."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError as error:
        raise UserError(f"'{path}' does not exist. Give an .npz file with one array per input.") from error
    except (OSError, ValueError, AttributeError, TypeError, zipfile.BadZipFile, EOFError) as error:
        raise UserError(
            f"'{path}' is not an .npz file of arrays. Write it with numpy.savez(path, name=array)."
        ) from error


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an .npz file, whole or not at all; the same arrays give the same bytes."""
    with whole_file(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(_entry(name), _npy(array))


def _entry(name: str) -> zipfile.ZipInfo:
    """A zip entry that says nothing of time and machine; numpy.savez's depends on the Python version."""
    entry = zipfile.ZipInfo(f"{name}.npy")
    entry.create_system = UNIX
    return entry


def _npy(array: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)
    return stream.getvalue()


def encode(buffers: Iterable[Buffer], arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Raw integers for each buffer.

    An array of the buffer's own integer type passes as it is, any other holds reals. Raises UserError for a missing
    or unknown name, another shape, and values that are not finite.
    """
    wanted = {buffer.name: buffer for buffer in buffers}
    check_names(wanted, arrays)
    return {name: encode_one(buffer, np.asarray(arrays[name])) for name, buffer in wanted.items()}


def check_names(wanted: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Raise UserError for a missing or unknown name; what is wanted has a name and a shape."""
    unknown = sorted(set(arrays) - set(wanted))
    if unknown:
        raise UserError(f"inputs: '{unknown[0]}' is no input of the program. {_listing(wanted.values())}")
    missing = sorted(set(wanted) - set(arrays))
    if missing:
        raise UserError(f"inputs: '{missing[0]}' is missing. {_listing(wanted.values())}")


def decode(buffers: Iterable[Buffer], raw: Mapping[str, NDArray[Any]]) -> Arrays:
    """The outputs as ONNX Runtime returns them: float32 of fixed point, integers as they are."""
    return {each.name: decode_one(each, raw[each.name]) for each in buffers}


def decode_one(buffer: Buffer, raw: NDArray[Any]) -> NDArray[Any]:
    """One tensor as ONNX Runtime would hold it."""
    if buffer.decode.kind == "mask":
        return decode_raw(buffer.decode, raw)
    if buffer.decode.kind != "fx":
        return raw
    return np.asarray(decode_raw(buffer.decode, raw), np.float32)


def exact_reals(buffer: Buffer, raw: NDArray[Any]) -> NDArray[Any]:
    """As ``decode_one``, but fixed point in float64, which holds all its bits."""
    return np.asarray(decode_raw(buffer.decode, raw)) if buffer.decode.kind == "fx" else decode_one(buffer, raw)


def write_raw(folder: Path, role: str, raw: Mapping[str, NDArray[Any]]) -> list[Path]:
    """Write little-endian raw integers: ``<role>.bin`` for a single tensor, else ``<name>.bin`` for each."""
    paths = _raw_paths(folder, role, raw)
    for path, array in zip(paths, raw.values(), strict=True):
        write_raw_file(path, array)
    return paths


def write_raw_file(path: Path, array: NDArray[Any]) -> None:
    """Write one tensor's little-endian raw integers."""
    with whole_file(path) as temporary:
        temporary.write_bytes(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())


def read_raw(path: Path, role: str, buffers: Sequence[Buffer]) -> Arrays:
    """The raw integers that ``write_raw`` wrote; ``path`` is their folder, or the .bin file of a single tensor.

    Raises UserError for a missing file, one of another size, and one file for several tensors.
    """
    require_place(path, buffers)
    names = [each.name for each in buffers]
    paths = _raw_paths(path, role, names) if path.is_dir() else [path]
    return {each.name: _read_raw_file(file, each) for each, file in zip(buffers, paths, strict=True)}


def require_place(path: Path, buffers: Sequence[Buffer]) -> None:
    """Raise UserError where ``path`` is one .bin file for several tensors."""
    if path.is_dir() or len(buffers) == 1:
        return
    names = ", ".join(each.name for each in buffers)
    raise UserError(f"'{path}' holds one tensor, found {len(buffers)}: {names}. Give a folder, or an .npz file.")


def _read_raw_file(path: Path, buffer: Buffer) -> NDArray[Any]:
    dtype = np.dtype(NUMPY_DTYPE[buffer.dtype]).newbyteorder("<")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"'{path}' cannot be read: {error.strerror}. Give a .bin file of the machine's integers."
        ) from error
    wanted = math.prod(buffer.shape) * dtype.itemsize
    if len(content) != wanted:
        raise UserError(
            f"'{path}' must hold {wanted} bytes, {buffer.dtype} {list(buffer.shape)} of '{buffer.name}', found "
            f"{len(content)}. Write the machine's integers, little-endian."
        )
    return np.frombuffer(content, dtype).astype(dtype.newbyteorder("=")).reshape(buffer.shape)


def _raw_paths(folder: Path, role: str, names: Collection[str]) -> list[Path]:
    return [folder / f"{name}.bin" for name in ([role] if len(names) == 1 else map(file_name, names))]


def file_name(tensor: str) -> str:
    """A tensor name with nothing a file name may not hold."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", tensor).strip("_.") or "tensor"


def wrong_shape(name: str, wanted: tuple[int, ...], found: tuple[int, ...]) -> UserError:
    """What to raise for an input of another shape."""
    stacked = len(found) > 0 and found[1:] == wanted
    remedy = (
        f"These are {found[0]} samples: give one, {name}=array[0]." if stacked else "Give one sample of that shape."
    )
    return UserError(f"inputs: '{name}' must have shape {list(wanted)}, found {list(found)}. {remedy}")


def encode_one(buffer: Buffer, array: NDArray[Any]) -> NDArray[Any]:
    """One tensor in raw integers; raises UserError as ``encode`` does."""
    if array.shape != buffer.shape:
        raise wrong_shape(buffer.name, buffer.shape, array.shape)
    if array.dtype.kind not in "biuf":
        raise UserError(f"inputs: '{buffer.name}' must hold numbers, found {array.dtype}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise UserError(f"inputs: '{buffer.name}' holds NaN or infinity. Replace these values by finite ones.")
    if array.dtype == NUMPY_DTYPE[buffer.dtype] and buffer.decode.kind != "fx":
        return array
    return encode_real(buffer.decode, array, buffer.dtype)


def _listing(buffers: Iterable[Any]) -> str:
    return "Inputs: " + ", ".join(f"{each.name} {list(each.shape)}" for each in buffers) + "."
