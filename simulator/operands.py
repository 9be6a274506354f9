"""Operands of instructions. Addresses and strides are in bytes, storage is little endian."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

SIZES = {"i8": 1, "u8": 1, "i32": 4, "i64": 8}


@dataclass(frozen=True)
class Lrm:
    """Value in the local register memory of each active PE; one stride per loop of the instruction."""

    addr: int
    dtype: str
    strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class Imm:
    """Constant of 64 bits, the same for each PE and element."""

    value: int


@dataclass(frozen=True)
class Ocm:
    """Value in on-chip memory.

    PE (r, c) at loop indices i uses ``addr + sum r_d*row_strides[d] + sum c_d*col_strides[d] + sum i_k*strides[k]``,
    where r_d and c_d are the digits of r and c in the grid's mixed radix.
    """

    addr: int
    dtype: str
    row_strides: tuple[int, ...] = ()
    col_strides: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class Grid:
    """Active PEs [0:prod(rows)] x [0:prod(cols)]; indices are mixed radix over ``rows`` and ``cols``, last fastest."""

    rows: tuple[int, ...]
    cols: tuple[int, ...]

    @property
    def height(self) -> int:
        """Active rows."""
        return prod(self.rows)

    @property
    def width(self) -> int:
        """Active columns."""
        return prod(self.cols)


Source = Lrm | Imm
