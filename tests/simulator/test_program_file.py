"""The program file and the listing: round trips, determinism, and every kind of damage refused with a clear text."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import fill, machine, overlapped, program, single

from epu.simulator.errors import ProgramError
from epu.simulator.instructions import INSTRUCTIONS, Alu, Grid, Halt, Imm, Instruction, Lrm, Wait
from epu.simulator.program import Buffer, Constant, DebugMap, Decode, KernelSpan, Program, Tap, parse_listing
from epu.simulator.program_file import _HEADER, MAGIC, VERSION

TARGET = machine(2, 2, 8)


def tap(**parts: Any) -> Tap:
    """A valid tap with some parts replaced."""
    whole = Tap("t", 2, Grid((2,), (2,)), (1,), Lrm(0, "i32", (4,)), (2, 2), 0, (2,), (1,), (0,), Decode("fx", 20))
    return dataclasses.replace(whole, **parts)


def sample() -> Program:
    """A program with every part filled."""
    decode = Decode("q", 0, (0.5, 0.25), (0, -3), 1)
    buffer = Buffer("x:0", "ext", 64, (2, 2), "i8", decode)
    debug = DebugMap((KernelSpan("k0", ("node é", "b"), 0, 3, 12, (buffer,), (buffer,)),), (tap(),))
    code = (*fill(TARGET), Halt())
    return Program(TARGET, code, 8192, (Constant(5, b"abc"),), (buffer,), (buffer,), debug, "sample")


def sealed(body: bytes) -> bytes:
    """A body under a right header."""
    return _HEADER.pack(MAGIC, VERSION, hashlib.sha256(body).digest()) + body


def test_round_trip_is_exact_and_deterministic(tmp_path: Path) -> None:
    data = sample().to_bytes()
    assert Program.from_bytes(data) == sample()
    assert Program.from_bytes(data).to_bytes() == data
    sample().save(tmp_path / "a.epu")
    assert Program.load(tmp_path / "a.epu") == sample()
    assert [each.name for each in tmp_path.iterdir()] == ["a.epu"]


@settings(deadline=None, max_examples=60, derandomize=True)
@given(body=st.lists(st.one_of(single(2, 2), overlapped(2, 2)), min_size=1, max_size=4))
def test_every_instruction_round_trips(body: Any) -> None:
    found = program(TARGET, [each for part in body for each in part], 0)
    assert Program.from_bytes(found.to_bytes()) == found
    assert parse_listing(found.listing()) == found.code


@pytest.mark.parametrize("kind", INSTRUCTIONS)
def test_each_instruction_has_a_manual_sentence_and_an_opcode(kind: type[Instruction]) -> None:
    assert kind.__doc__ is not None
    assert not kind.__doc__.startswith(kind.__name__ + "(")
    assert 1 <= kind.opcode <= 255


def test_truncation_is_refused() -> None:
    data = sample().to_bytes()
    for length in range(0, len(data), 37):
        with pytest.raises(ProgramError):
            Program.from_bytes(data[:length])


def test_truncation_under_a_right_checksum_is_refused() -> None:
    body = sample().to_bytes()[_HEADER.size :]
    for length in range(0, len(body), 31):
        with pytest.raises(ProgramError):
            Program.from_bytes(sealed(body[:length]))


def test_flipped_bits_are_refused() -> None:
    data = sample().to_bytes()
    for at in range(0, len(data), 29):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(ProgramError):
            Program.from_bytes(bytes(damaged))


def test_flipped_bits_under_a_right_checksum_never_crash() -> None:
    body = sample().to_bytes()[_HEADER.size :]
    for at in range(len(body)):
        damaged = bytearray(body)
        damaged[at] ^= 1 << at % 8
        with contextlib.suppress(ProgramError):
            Program.from_bytes(sealed(bytes(damaged)))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "header of 40 bytes, found 0"),
        (b"ELF\x00" + bytes(60), "starts with b'EPU"),
        (_HEADER.pack(MAGIC, 9, bytes(32)), "version must be 1, found 9"),
        (_HEADER.pack(MAGIC, VERSION, bytes(32)) + b"x", "checksum"),
        (sealed(sample().to_bytes()[_HEADER.size :] + b"x"), "found 1 more bytes"),
    ],
)
def test_messages(data: bytes, text: str) -> None:
    with pytest.raises(ProgramError, match=text):
        Program.from_bytes(data)


def test_load_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "bad.epu").write_bytes(b"nothing")
    with pytest.raises(ProgramError, match="bad.epu"):
        Program.load(tmp_path / "bad.epu")


def replaced(**parts: Any) -> bytes:
    return dataclasses.replace(sample(), **parts).to_bytes()


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"code": (Wait(1),)}, "Halt must be the last"),
        ({"code": (Halt(), Halt())}, "Halt must be the last"),
        ({"code": (Wait(0), Wait(1), Wait(1), Halt())}, "must be 1 to 255, found 0"),
        ({"ext_bytes": 16}, "must lie within ext"),
        ({"constants": (Constant(8190, b"abc"),)}, "constant must lie within external bytes 0 to 8192"),
        ({"inputs": (Buffer("x", "ocm", 0, (1,), "i8"),)}, "'x' must lie in space 'ext'"),
        ({"outputs": (Buffer("x", "ext", 8190, (4,), "i8"),)}, "'x' must lie within ext bytes 0 to 8192"),
        ({"debug": DebugMap((KernelSpan("k", (), 0, 99),))}, "kernel 'k' must lie within pc 0 to 4"),
        ({"debug": DebugMap((), (tap(pc=4),))}, "tap of 't' must be at pc 0 to 3, found 4"),
        ({"debug": DebugMap((), (tap(operand=Lrm(254, "i32", (4,))),))}, "LRM bytes 0 to 256, found 254 to 258"),
        ({"debug": DebugMap((), (tap(operand=Lrm(0, "i16", (4,))),))}, "found 'i16'"),
        ({"debug": DebugMap((), (tap(offset=1),))}, "elements 0 to 4, found 1 to 5"),
        ({"debug": DebugMap((), (tap(decode=Decode("float")),))}, "decode kind must be fx, q or int, found 'float'"),
    ],
)
def test_limits_are_checked_on_loading(parts: dict[str, Any], text: str) -> None:
    with pytest.raises(ProgramError, match=text):
        Program.from_bytes(replaced(**parts))


def test_listing_shows_kernels_and_tensors() -> None:
    text = sample().listing()
    assert "; kernel k0: node é, b" in text
    assert "; input x:0 i8[2x2] at ext 64" in text
    assert "1: Wait tag=9" in text


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("Jump to=3", "found 'Jump'"),
        ("Wait tag=3 speed=1", "no field 'speed'"),
        ("Wait", "missing 1 required positional argument"),
        ("Wait tag=(1", "no value reads"),
    ],
)
def test_bad_listings_are_refused(line: str, text: str) -> None:
    with pytest.raises(ProgramError, match=text):
        parse_listing(line)


def test_extreme_immediates_round_trip() -> None:
    grid = Grid((1,), (1,))
    code = tuple(Alu("mov", grid, (), Lrm(0, "i64"), Imm(value)) for value in (-(1 << 63), (1 << 63) - 1, 0))
    found = Program(TARGET, (*code, Halt()), 0)
    assert Program.from_bytes(found.to_bytes()) == found
    assert parse_listing(found.listing()) == found.code
