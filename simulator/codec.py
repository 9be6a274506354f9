"""Binary form of dataclass values: each field packed in order of declaration, little endian, lengths checked on reading."""

from __future__ import annotations

import struct
import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from epu.simulator.errors import ProgramError

_INT, _FLOAT, _COUNT = struct.Struct("<q"), struct.Struct("<d"), struct.Struct("<Q")


def truncated(found: int, wanted: int) -> ProgramError:
    """The data ends too early."""
    text = f"program data is truncated: {wanted} more bytes needed, {found} left"
    return ProgramError(f"{text}. Copy the file again or compile again.")


class Reader:
    """Walks through bytes and never past their end."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes not yet read."""
        return len(self._data) - self._at

    def take(self, count: int) -> memoryview:
        """The next ``count`` bytes."""
        if count > self.left:
            raise truncated(self.left, count)
        self._at += count
        return self._data[self._at - count : self._at]

    def unpack(self, packing: struct.Struct) -> Any:
        """One packed value."""
        return packing.unpack(self.take(packing.size))[0]

    def count(self, size: int = 1) -> int:
        """A length of entries of at least ``size`` bytes each."""
        found: int = self.unpack(_COUNT)
        if found * size > self.left:
            raise truncated(self.left, found * size)
        return found


Write = Callable[[bytearray, Any], None]
Read = Callable[[Reader], Any]


def codec_of(kind: Any) -> tuple[Write, Read]:
    """(writer, reader) of values of a type: int, float, bool, str, bytes, tuple, union, dataclass."""
    if kind not in _known:
        _known[kind] = _build(kind)
    return _known[kind]


def _build(kind: Any) -> tuple[Write, Read]:
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return _integers() if item is int else _sequence(*codec_of(item))
    if get_origin(kind) in (Union, types.UnionType):
        return _union(get_args(kind))
    if is_dataclass(kind):
        return _record(kind)
    raise TypeError(f"no binary form for {kind!r}")


def _write_bytes(out: bytearray, value: bytes) -> None:
    out += _COUNT.pack(len(value)) + value


def _read_text(reader: Reader) -> str:
    try:
        return str(reader.take(reader.count()), "utf-8")
    except UnicodeDecodeError as error:
        raise ProgramError(f"program data holds text that is not UTF-8 ({error.reason}). Compile again.") from None


_known: dict[Any, tuple[Write, Read]] = {
    int: (lambda out, value: out.extend(_INT.pack(value)), lambda reader: reader.unpack(_INT)),
    float: (lambda out, value: out.extend(_FLOAT.pack(value)), lambda reader: reader.unpack(_FLOAT)),
    bool: (lambda out, value: out.append(bool(value)), lambda reader: reader.take(1)[0] != 0),
    str: (lambda out, value: _write_bytes(out, value.encode()), _read_text),
    bytes: (_write_bytes, lambda reader: bytes(reader.take(reader.count()))),
    type(None): (lambda out, value: None, lambda reader: None),
}


def _integers() -> tuple[Write, Read]:
    def write(out: bytearray, value: Any) -> None:
        out.extend(struct.pack(f"<Q{len(value)}q", len(value), *value))

    def read(reader: Reader) -> tuple[int, ...]:
        count = reader.count(_INT.size)
        return struct.unpack(f"<{count}q", reader.take(count * _INT.size))

    return write, read


def _sequence(write_item: Write, read_item: Read) -> tuple[Write, Read]:
    def write(out: bytearray, value: Any) -> None:
        out.extend(_COUNT.pack(len(value)))
        for item in value:
            write_item(out, item)

    return write, lambda reader: tuple(read_item(reader) for _ in range(reader.count()))


def _union(kinds: tuple[Any, ...]) -> tuple[Write, Read]:
    """A byte that says which type, then the value."""
    codecs = [codec_of(kind) for kind in kinds]

    def write(out: bytearray, value: Any) -> None:
        choice = next(i for i, kind in enumerate(kinds) if isinstance(value, kind))
        out.append(choice)
        codecs[choice][0](out, value)

    def read(reader: Reader) -> Any:
        choice = reader.take(1)[0]
        if choice >= len(codecs):
            raise ProgramError(f"program data has operand kind {choice}, limit {len(codecs) - 1}. Compile again.")
        return codecs[choice][1](reader)

    return write, read


def _record(kind: Any) -> tuple[Write, Read]:
    hints = get_type_hints(kind)
    names = [each.name for each in fields(kind)]
    codecs = [codec_of(hints[name]) for name in names]

    def write(out: bytearray, value: Any) -> None:
        for name, (write_field, _) in zip(names, codecs):
            write_field(out, getattr(value, name))

    return write, lambda reader: kind(*[read_field(reader) for _, read_field in codecs])
