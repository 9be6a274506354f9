"""The program: code, constants, memory map, debug map."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from epu.simulator.machine import Machine
from epu.simulator.operands import Grid, Lrm

if TYPE_CHECKING:
    from epu.simulator.instruction import Instruction


@dataclass(frozen=True)
class Decode:
    """How raw integers stand for reals.

    ``"fx"``: ``raw * 2**-frac``. ``"q"``: ``(raw - zero_point) * scale`` (ONNX DequantizeLinear), one entry or one per slice
    along ``axis``. ``"int"``: the integer itself. ``"mask"``: bool, 0 is false.
    """

    kind: str = "int"
    frac: int = 0
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    axis: int = 0


@dataclass(frozen=True)
class Buffer:
    """A tensor at rest, C-contiguous, in space ``"ext"`` or ``"ocm"``; ``addr`` in bytes."""

    name: str
    space: str
    addr: int
    shape: tuple[int, ...]
    dtype: str
    decode: Decode = Decode()


@dataclass(frozen=True)
class Constant:
    """Bytes that lie in external memory before the program starts."""

    addr: int
    data: bytes


@dataclass(frozen=True)
class KernelSpan:
    """Instructions [start_pc, end_pc) of one kernel, the ONNX nodes it computes, where its operands live."""

    name: str
    nodes: tuple[str, ...]
    start_pc: int
    end_pc: int
    macs: int = 0
    inputs: tuple[Buffer, ...] = ()
    outputs: tuple[Buffer, ...] = ()


@dataclass(frozen=True)
class Tap:
    """After ``pc`` has run, ``operand`` holds the elements ``offset + sum of index * stride`` of a tensor of ``shape``.

    Strides (per row digit, column digit and loop) count elements of the C-contiguous tensor.
    """

    tensor: str
    pc: int
    grid: Grid
    loops: tuple[int, ...]
    operand: Lrm
    shape: tuple[int, ...]
    offset: int
    row_strides: tuple[int, ...]
    col_strides: tuple[int, ...]
    strides: tuple[int, ...]
    decode: Decode = Decode()


@dataclass(frozen=True)
class Columns:
    """Part of a tensor of ``shape``, seen as ``rows`` rows: ``width`` elements of each row, from ``first``."""

    shape: tuple[int, ...]
    rows: int
    first: int
    width: int

    def of(self, tensor: Any) -> Any:
        """That part of an array, as a view."""
        return tensor.reshape(self.rows, -1)[:, self.first : self.first + self.width]


@dataclass(frozen=True)
class Derived:
    """A tensor the program never holds, because it is a function of 8-bit codes that a table has swallowed.

    At the end of kernel number ``kernel`` it is ``table[code - low]`` for each code of that kernel's operand ``source``;
    with ``columns`` these are that part of it.
    """

    tensor: str
    kernel: int
    source: str
    table: tuple[int, ...]
    low: int
    decode: Decode = Decode()
    columns: Columns | None = None


@dataclass(frozen=True)
class Moved:
    """A tensor of ``shape`` that is a tapped one with its elements in another order.

    At the end of kernel number ``kernel`` it is ``source``, seen in shape ``seen``, with the axes in order ``order``.
    """

    tensor: str
    kernel: int
    source: str
    seen: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]
    decode: Decode = Decode()


@dataclass(frozen=True)
class DebugMap:
    """What the code means; never changes what it does."""

    kernels: tuple[KernelSpan, ...] = ()
    taps: tuple[Tap, ...] = ()
    derived: tuple[Derived, ...] = ()
    moved: tuple[Moved, ...] = ()

    def node_at(self, pc: int) -> str:
        """ONNX node names of the kernel at ``pc``, empty where unknown."""
        return next((", ".join(span.nodes) for span in self.kernels if span.start_pc <= pc < span.end_pc), "")


@dataclass(frozen=True)
class Program:
    """All that the machine needs to run one model."""

    machine: Machine
    code: tuple[Instruction, ...]
    ext_bytes: int
    constants: tuple[Constant, ...] = ()
    inputs: tuple[Buffer, ...] = ()
    outputs: tuple[Buffer, ...] = ()
    debug: DebugMap = field(default_factory=DebugMap)
    name: str = "program"

    def to_bytes(self) -> bytes:
        """The bytes of the ``.epu`` file; equal programs give equal bytes."""
        from epu.simulator import program_file

        return program_file.to_bytes(self)

    @staticmethod
    def from_bytes(data: bytes) -> Program:
        """The program of a file's bytes; ProgramError where they are truncated, damaged or break a limit."""
        from epu.simulator import program_file

        return program_file.from_bytes(data)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ``.epu`` file at once or not at all."""
        from epu.simulator import program_file

        program_file.save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Program:
        """Read and check an ``.epu`` file; ProgramError names it."""
        from epu.simulator import program_file

        return program_file.load(path)

    def listing(self) -> str:
        """Text: tensors and kernels as comments, one instruction per line; ``parse_listing`` reads it."""
        from epu.simulator import listing

        return listing.program_listing(self)


def parse_listing(text: str) -> tuple[Instruction, ...]:
    """The instructions of a listing; ProgramError where a line reads as none."""
    from epu.simulator import listing

    return listing.parse_listing(text)
