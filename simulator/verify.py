"""What can be said of a program before it runs: limits, bounds, alignment, overlap inside one instruction."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from epu.simulator.control import Halt
from epu.simulator.errors import MachineFault, ProgramError
from epu.simulator.instruction import Access, Instruction
from epu.simulator.layout import elements_disjoint, overlap, same_or_disjoint_elements
from epu.simulator.machine import Machine
from epu.simulator.operands import SIZES
from epu.simulator.program import Buffer, Program


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
        if not 0 <= tap.pc < len(program.code):
            yield f"tap of '{tap.tensor}' must be at pc 0 to {len(program.code) - 1}, found {tap.pc}"


def _buffers(program: Program) -> Iterator[Buffer]:
    yield from (*program.inputs, *program.outputs)
    for span in program.debug.kernels:
        yield from (*span.inputs, *span.outputs)


def _buffer_problems(buffer: Buffer, sizes: dict[str, int]) -> Iterator[str]:
    if buffer.space not in ("ext", "ocm") or buffer.dtype not in SIZES:
        yield f"buffer '{buffer.name}' has space {buffer.space!r} and dtype {buffer.dtype!r}"
        return
    end = buffer.addr + prod(buffer.shape) * SIZES[buffer.dtype]
    if buffer.addr < 0 or end > sizes[buffer.space]:
        found = f"{buffer.addr} to {end}"
        yield f"buffer '{buffer.name}' must lie within {buffer.space} bytes 0 to {sizes[buffer.space]}, found {found}"
