"""Text form of instructions and programs: one instruction per line, fields by name, no blanks inside a value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_type_hints

from epu.simulator.errors import ProgramError
from epu.simulator.operands import Grid, Imm, Lrm, Ocm

if TYPE_CHECKING:
    from epu.simulator.instruction import Instruction
    from epu.simulator.program import Buffer, Program


def instruction_text(instruction: Instruction) -> str:
    """One line: the name, then ``field=value`` for each field that is set."""
    named = ((each.name, getattr(instruction, each.name)) for each in fields(instruction))
    return " ".join(
        [type(instruction).__name__, *(f"{name}={_text(value)}" for name, value in named if value is not None)]
    )


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({','.join(map(str, value))})"
    if isinstance(value, Imm):
        return f"#{value.value}"
    if isinstance(value, Grid):
        return f"{_text(value.rows)}x{_text(value.cols)}"
    if isinstance(value, Lrm):
        return f"lrm:{value.addr}:{value.dtype}:{_text(value.strides)}"
    if isinstance(value, Ocm):
        strides = ":".join(_text(each) for each in (value.row_strides, value.col_strides, value.strides))
        return f"ocm:{value.addr}:{value.dtype}:{strides}"
    return str(value)


_TUPLE = r"\(-?\d*(?:,-?\d+)*\)"
_PATTERNS: dict[str, Any] = {
    rf"({_TUPLE})x({_TUPLE})": lambda rows, cols: Grid(_numbers(rows), _numbers(cols)),
    rf"lrm:(-?\d+):(\w+):({_TUPLE})": lambda addr, dtype, strides: Lrm(int(addr), dtype, _numbers(strides)),
    rf"ocm:(-?\d+):(\w+):({_TUPLE}):({_TUPLE}):({_TUPLE})": lambda addr, dtype, *strides: Ocm(
        int(addr), dtype, *map(_numbers, strides)
    ),
    r"#(-?\d+)": lambda value: Imm(int(value)),
    rf"({_TUPLE})": lambda value: _numbers(value),
    r"(-?\d+)": lambda value: int(value),
    r"(True|False)": lambda value: value == "True",
    r"(\w+)": lambda value: value,
}


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text[1:-1].split(",") if each)


def _value(text: str) -> Any:
    for pattern, make in _PATTERNS.items():
        found = re.fullmatch(pattern, text)
        if found:
            return make(*found.groups())
    raise ProgramError(f"listing: no value reads {text!r}. Write it as `epu disasm` does.")


def parse_instruction(line: str) -> Instruction:
    """The instruction of one line; ProgramError where there is none."""
    from epu.simulator.instructions import INSTRUCTIONS

    name, *parts = line.split()
    known = {each.__name__: each for each in INSTRUCTIONS}
    if name not in known:
        raise ProgramError(f"listing: instruction must be one of {', '.join(known)}, found {name!r}. Correct the line.")
    values = dict(part.partition("=")[::2] for part in parts)
    hints = get_type_hints(known[name])
    unknown = [each for each in values if each not in hints]
    if unknown:
        raise ProgramError(f"listing: {name} has no field {unknown[0]!r}. Correct the line.")
    try:
        return known[name](**{field: _value(text) for field, text in values.items()})
    except TypeError as error:
        raise ProgramError(f"listing: {line.strip()!r}: {error}. Correct the line.") from None


def program_listing(program: Program) -> str:
    """All instructions with their pc; comments (``;``) say where tensors lie and which kernel follows."""
    return "\n".join([*_header(program), *_code(program)]) + "\n"


def _header(program: Program) -> Iterator[str]:
    yield f"; program {program.name}"
    yield f"; {program.machine}"
    yield f"; external memory {program.ext_bytes} bytes"
    for constant in program.constants:
        yield f"; constant ext {constant.addr} to {constant.addr + len(constant.data)}"
    for kind, buffers in (("input", program.inputs), ("output", program.outputs)):
        for buffer in buffers:
            yield f"; {kind} {_buffer(buffer)}"


def _buffer(buffer: Buffer) -> str:
    shape = "x".join(map(str, buffer.shape))
    return f"{buffer.name} {buffer.dtype}[{shape}] at {buffer.space} {buffer.addr}"


def _code(program: Program) -> Iterator[str]:
    width = len(str(len(program.code)))
    starts: dict[int, list[str]] = {}
    for span in program.debug.kernels:
        lines = [f"; kernel {span.name}: {', '.join(span.nodes)}"]
        lines += [f";   in  {_buffer(buffer)}" for buffer in span.inputs]
        lines += [f";   out {_buffer(buffer)}" for buffer in span.outputs]
        starts.setdefault(span.start_pc, []).extend(lines)
    for pc, instruction in enumerate(program.code):
        yield from starts.get(pc, ())
        yield f"{pc:{width}}: {instruction_text(instruction)}"


def parse_listing(text: str) -> tuple[Instruction, ...]:
    """The instructions of a listing, in order; comments and pcs are skipped. ProgramError where a line reads as nothing."""
    lines = (re.sub(r"^\s*\d+:", "", line.split(";")[0]).strip() for line in text.splitlines())
    return tuple(parse_instruction(line) for line in lines if line)
