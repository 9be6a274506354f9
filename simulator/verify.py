"""What can be said of a program before it runs: limits, bounds, alignment, overlap inside one instruction."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from epu.simulator.control import Halt
from epu.simulator.errors import MachineFault, ProgramError
from epu.simulator.fixed_point import RAW_DTYPE
from epu.simulator.instruction import (
    Access,
    Instruction,
    digit_pairs,
    grid_limits,
    loop_limits,
    lrm_access,
    lrm_limits,
)
from epu.simulator.layout import bounds, elements_disjoint, overlap, same_or_disjoint_elements
from epu.simulator.machine import Machine
from epu.simulator.operands import SIZES
from epu.simulator.program import Buffer, Columns, Decode, KernelSpan, Program, Tap


def memory_sizes(machine: Machine, ext_bytes: int) -> dict[str, int]:
    """Bytes of each memory space."""
    return {"lrm": machine.lrm_bytes, "ocm": machine.ocm_bytes, "ext": ext_bytes}


def check_instruction(instruction: Instruction, machine: Machine, sizes: dict[str, int]) -> tuple[Access, ...]:
    """The instruction's accesses; MachineFault (without its place) where it breaks a limit."""
    for operand, reason in instruction.limits(machine):
        raise fault(operand, reason)
    accesses = instruction.accesses()
    for access in accesses:
        _check_access(access, sizes[access.space])
    for write in accesses:
        if write.writes:
            _check_overlap(write, accesses)
    return accesses


def fault(operand: str, reason: str) -> MachineFault:
    """A fault whose place is filled in later."""
    found = MachineFault(reason)
    found.operand = operand
    return found


def _check_access(access: Access, size: int) -> None:
    low, high = access.bounds
    if low < 0 or high > size:
        limit = f"must stay within {access.space.upper()} bytes 0 to {size}"
        raise fault(access.operand, f"{limit}, found {low} to {high}; move it or make the tile smaller")
    steps = [stride for count, stride in zip(access.shape, access.strides) if count > 1]
    odd = next((each for each in (access.addr, *steps) if each % access.align), None)
    if odd is not None:
        raise fault(
            access.operand, f"address and strides must be multiples of {access.align}, found {odd}; pad the layout"
        )
    if access.writes and not elements_disjoint(access.shape, access.strides, access.size):
        found = f"shape {access.shape}, strides {access.strides}"
        raise fault(access.operand, f"written elements must not overlap, found {found}; give each its own place")


def _check_overlap(write: Access, accesses: tuple[Access, ...]) -> None:
    for read in accesses:
        if read.writes or read.space != write.space or read.span == write.span:
            continue
        if read.shape == write.shape:
            apart = same_or_disjoint_elements(write.span, read.span)
        else:
            apart = not overlap(write.span, read.span)
        if not apart:
            found = f"{write.span} over {read.operand} {read.span}"
            raise fault(write.operand, f"must not overwrite what later elements read, found {found}; move it")


def check_program(program: Program) -> None:
    """ProgramError where memory map, code frame or debug map break a limit (single instructions apart)."""
    for problem in _problems(program):
        raise ProgramError(f"program '{program.name}': {problem}. Compile it again.")


def _problems(program: Program) -> Iterator[str]:
    sizes = memory_sizes(program.machine, program.ext_bytes)
    if program.ext_bytes < 0:
        yield f"ext_bytes must not be negative, found {program.ext_bytes}"
    halts = [pc for pc, each in enumerate(program.code) if isinstance(each, Halt)]
    if halts != [len(program.code) - 1]:
        yield f"Halt must be the last instruction and the only one, found at pc {halts} of {len(program.code)}"
    for constant in program.constants:
        if constant.addr < 0 or constant.addr + len(constant.data) > sizes["ext"]:
            yield f"constant must lie within external bytes 0 to {sizes['ext']}, found {constant.addr}"
    for buffer in (*program.inputs, *program.outputs):
        if buffer.space != "ext":
            yield f"input or output '{buffer.name}' must lie in space 'ext', found {buffer.space!r}"
    for span in program.debug.kernels:
        if not 0 <= span.start_pc <= span.end_pc <= len(program.code):
            yield f"kernel '{span.name}' must lie within pc 0 to {len(program.code)}, found {span.start_pc}"
    for buffer in _buffers(program):
        yield from _buffer_problems(buffer, sizes)
    for tap in program.debug.taps:
        yield from (f"tap of '{tap.tensor}' {problem}" for problem in _tap_problems(tap, program))
    for derived in program.debug.derived:
        if not 0 <= derived.kernel < len(program.debug.kernels):
            yield f"derived '{derived.tensor}' must name a kernel below {len(program.debug.kernels)}, found {derived.kernel}"
        elif derived.source not in _operands(program.debug.kernels[derived.kernel]):
            yield f"derived '{derived.tensor}' must read an operand of its kernel, found {derived.source!r}"
        elif derived.columns is not None and not _fits(derived.columns):
            yield f"derived '{derived.tensor}' must lie within its tensor, found {derived.columns}"
    tapped = {tap.tensor: prod(tap.shape) for tap in program.debug.taps}
    for moved in program.debug.moved:
        sizes_agree = {prod(moved.seen), prod(moved.shape)} == {tapped.get(moved.source, -1)}
        if not sizes_agree or sorted(moved.order) != list(range(len(moved.seen))):
            yield f"moved '{moved.tensor}' must hold a tapped tensor's elements, found {moved.source!r} in {moved.order}"


def _fits(columns: Columns) -> bool:
    size, rows = prod(columns.shape), columns.rows
    return rows > 0 and size % rows == 0 and 0 <= columns.first <= columns.first + columns.width <= size // rows


def _operands(span: KernelSpan) -> set[str]:
    return {each.name for each in (*span.inputs, *span.outputs)}


def _tap_problems(tap: Tap, program: Program) -> Iterator[str]:
    machine = program.machine
    if not 0 <= tap.pc < len(program.code):
        yield f"must be at pc 0 to {len(program.code) - 1}, found {tap.pc}"
    limits = [
        *grid_limits(tap.grid, machine),
        *loop_limits(tap.loops),
        *lrm_limits("operand", tap.operand, len(tap.loops)),
    ]
    yield from (f"{name}: {limit}" for name, limit in limits)
    if limits:
        return
    low, high = lrm_access("operand", False, tap.grid, tap.loops, tap.operand).bounds
    if low < 0 or high > machine.lrm_bytes:
        yield f"must stay within LRM bytes 0 to {machine.lrm_bytes}, found {low} to {high}"
    pairs = [*digit_pairs(tap.grid.rows, tap.row_strides), *digit_pairs(tap.grid.cols, tap.col_strides)]
    counts, strides = zip(*pairs, *zip(tap.loops, tap.strides))
    first, end = bounds(tap.offset, counts, strides, 1)
    if first < 0 or end > prod(tap.shape):
        yield f"must stay within the tensor's elements 0 to {prod(tap.shape)}, found {first} to {end}"
    yield from _decode_problems(tap.decode)


def _decode_problems(decode: Decode) -> Iterator[str]:
    if decode.kind not in RAW_DTYPE:
        yield f"decode kind must be fx, q or int, found {decode.kind!r}"
    if decode.kind == "q" and not (decode.scale and decode.zero_point):
        yield "decode of kind q must have a scale and a zero point, found none"
    if not -1000 <= decode.frac <= 1000:
        yield f"fraction bits must be -1000 to 1000, found {decode.frac}"


def _buffers(program: Program) -> Iterator[Buffer]:
    yield from (*program.inputs, *program.outputs)
    for span in program.debug.kernels:
        yield from (*span.inputs, *span.outputs)


def _buffer_problems(buffer: Buffer, sizes: dict[str, int]) -> Iterator[str]:
    yield from (f"buffer '{buffer.name}': {problem}" for problem in _decode_problems(buffer.decode))
    if any(count < 0 for count in buffer.shape):
        yield f"buffer '{buffer.name}' must have no negative axis, found {buffer.shape}"
    if buffer.space not in ("ext", "ocm") or buffer.dtype not in SIZES:
        yield f"buffer '{buffer.name}' has space {buffer.space!r} and dtype {buffer.dtype!r}"
        return
    end = buffer.addr + prod(buffer.shape) * SIZES[buffer.dtype]
    if buffer.addr < 0 or end > sizes[buffer.space]:
        found = f"{buffer.addr} to {end}"
        yield f"buffer '{buffer.name}' must lie within {buffer.space} bytes 0 to {sizes[buffer.space]}, found {found}"
