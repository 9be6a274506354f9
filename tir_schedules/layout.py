"""Where the elements of an on-array buffer live: which PE, which LRM byte."""

from __future__ import annotations

from dataclasses import dataclass

from epu.simulator.operands import SIZES

from .nest import Affine, BufferInfo, Key, Loop, Nest


@dataclass(frozen=True)
class Digit:
    """One loop of the writer seen as a digit of a dimension's index: ``index = sum(coefficient * digit) + base``."""

    dim: int
    coefficient: int
    extent: int
    kind: str
    stride: int  # bytes, local digits only


@dataclass(frozen=True)
class Layout:
    """Distribution of an LRM buffer over PEs and bytes, fixed by the nest that writes it."""

    digits: tuple[Digit, ...]
    bytes_per_pe: int
    dtype: str

    def find(self, dim: int, coefficient: int, extent: int, kind: str) -> Digit:
        """The digit that a consumer's loop steps through; ValueError where the data lies elsewhere."""
        for digit in self.digits:
            if digit.dim != dim or digit.kind != kind:
                continue
            if kind != "local" and (digit.coefficient, digit.extent) == (coefficient, extent):
                return digit
            if kind == "local" and _inside(digit, coefficient, extent):
                return digit
        raise ValueError(f"dimension {dim} has no {kind} digit of step {coefficient} and extent {extent}")


def _inside(digit: Digit, coefficient: int, extent: int) -> bool:
    if coefficient % digit.coefficient:
        return False
    return (coefficient // digit.coefficient) * (extent - 1) < digit.extent


def loop_dims(indices: tuple[Affine, ...], loop: Loop) -> list[tuple[int, int]]:
    """(dimension, coefficient) for each index that uses the loop's variable."""
    return [(dim, c) for dim, (_, parts) in enumerate(indices) for var, c in parts if var == loop.var]


def layout_of(buffer: BufferInfo, writer: Nest) -> Layout:
    """Row-major over the local digits of each dimension; array digits take no bytes."""
    found = []
    for loop in writer.loops:
        for dim, coefficient in loop_dims(writer.target.indices, loop):
            if loop.extent > 1:
                found.append((dim, -coefficient, loop.extent, loop.kind))
    size = stride = SIZES[buffer.dtype]
    digits = []
    for dim, negative, extent, kind in sorted(found, reverse=True):
        local = kind == "local"
        digits.append(Digit(dim, -negative, extent, kind, stride if local else 0))
        stride *= extent if local else 1
    return Layout(tuple(digits), max(stride, size), buffer.dtype)


def box_of(writer: Nest) -> tuple[int, ...]:
    """Extent of each dimension of the region that one execution of the nest writes."""
    box = []
    for _, parts in writer.target.indices:
        own: dict[Key, int] = dict(parts)
        box.append(1 + sum(own[loop.var] * (loop.extent - 1) for loop in writer.loops if loop.var in own))
    return tuple(box)


def row_major(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Byte strides of a C-contiguous tensor."""
    strides, step = [], size
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))
