"""The ``.epu`` file: magic, version, SHA-256 of the rest, then the program. Deterministic, portable, checked on loading."""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from pathlib import Path
from typing import Any

from epu.simulator.codec import Reader, codec_of
from epu.simulator.errors import ConfigError, MachineFault, ProgramError
from epu.simulator.instruction import Instruction
from epu.simulator.instructions import BY_OPCODE
from epu.simulator.machine import Machine
from epu.simulator.program import Buffer, Constant, DebugMap, Program
from epu.simulator.verify import check_instruction, check_program, memory_sizes

MAGIC = b"EPU\x00"
VERSION = 1
_HEADER = struct.Struct("<4sI32s")
_SECTIONS: dict[str, Any] = {  # fields of Program and their types, in order of the file; the code comes last
    "name": str,
    "machine": Machine,
    "ext_bytes": int,
    "constants": tuple[Constant, ...],
    "inputs": tuple[Buffer, ...],
    "outputs": tuple[Buffer, ...],
    "debug": DebugMap,
}
_ORDER = tuple[int, ...]


def to_bytes(program: Program) -> bytes:
    """The file's bytes."""
    body = bytearray()
    for name, kind in _SECTIONS.items():
        codec_of(kind)[0](body, getattr(program, name))
    _write_code(body, program.code)
    return _HEADER.pack(MAGIC, VERSION, hashlib.sha256(body).digest()) + bytes(body)


def _write_code(out: bytearray, code: tuple[Instruction, ...]) -> None:
    """Each distinct instruction once, in order of first use, then their numbers."""
    numbers: dict[Instruction, int] = {}
    order = tuple(numbers.setdefault(each, len(numbers)) for each in code)
    codec_of(int)[0](out, len(numbers))
    for each in numbers:
        out.append(each.opcode)
        codec_of(type(each))[0](out, each)
    codec_of(_ORDER)[0](out, order)


def from_bytes(data: bytes) -> Program:
    """The program of a file's bytes; ProgramError where they are not a whole, valid program."""
    body = _checked_body(data)
    reader = Reader(body)
    try:
        parts = {name: codec_of(kind)[1](reader) for name, kind in _SECTIONS.items()}
        program = Program(code=_read_code(reader), **parts)
    except ConfigError as error:
        raise ProgramError(f"program data describes no valid machine: {error}") from None
    if reader.left:
        raise ProgramError(f"program data must end after the code, found {reader.left} more bytes. Compile again.")
    check_program(program)
    _check_code(program)
    return program


def _checked_body(data: bytes) -> memoryview:
    if len(data) < _HEADER.size:
        raise ProgramError(
            f"an EPU program has a header of {_HEADER.size} bytes, found {len(data)}. Copy the file again."
        )
    magic, version, digest = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise ProgramError(
            f"an EPU program starts with {MAGIC!r}, found {magic!r}. Give a file that `epu compile` wrote."
        )
    if version != VERSION:
        raise ProgramError(f"program version must be {VERSION}, found {version}. Compile again with this release.")
    body = memoryview(data)[_HEADER.size :]
    if hashlib.sha256(body).digest() != digest:
        text = f"the checksum of the program's {len(body)} bytes does not match its header: truncated or damaged"
        raise ProgramError(f"{text}. Copy the file again or compile again.")
    return body


def _read_code(reader: Reader) -> tuple[Instruction, ...]:
    distinct = [_read_instruction(reader) for _ in range(_bounded(codec_of(int)[1](reader), reader.left))]
    order = codec_of(_ORDER)[1](reader)
    if order and not 0 <= min(order) <= max(order) < len(distinct):
        raise ProgramError(f"instruction numbers must be below {len(distinct)}, found {max(order)}. Compile again.")
    return tuple(distinct[number] for number in order)


def _bounded(count: int, limit: int) -> int:
    if not 0 <= count <= limit:
        raise ProgramError(f"number of instructions must be 0 to {limit}, found {count}. Compile again.")
    return count


def _read_instruction(reader: Reader) -> Instruction:
    opcode = reader.take(1)[0]
    if opcode not in BY_OPCODE:
        raise ProgramError(
            f"opcode must be one of {sorted(BY_OPCODE)}, found {opcode}. Compile again with this release."
        )
    instruction: Instruction = codec_of(BY_OPCODE[opcode])[1](reader)
    return instruction


def _check_code(program: Program) -> None:
    sizes = memory_sizes(program.machine, program.ext_bytes)
    known: set[Instruction] = set()
    for pc, instruction in enumerate(program.code):
        if instruction in known:
            continue
        known.add(instruction)
        try:
            check_instruction(instruction, program.machine, sizes)
        except MachineFault as fault:
            placed = fault.at(pc, str(instruction), program.debug.node_at(pc))
            raise ProgramError(f"program '{program.name}' breaks a limit of the machine: {placed}") from None


def save(program: Program, path: str | os.PathLike[str]) -> None:
    """Write the file under a temporary name beside it, then rename: a reader never sees half a file."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=target.name, suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(to_bytes(program))
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: str | os.PathLike[str]) -> Program:
    """Read and check a file; ProgramError names it."""
    try:
        return from_bytes(Path(path).read_bytes())
    except ProgramError as error:
        raise ProgramError(f"file '{path}': {error}") from None
