"""Reads a scheduled PrimFunc into plain Python once: sequencer loops, allocations, and the nests that become instructions.

A *nest* is the run of annotated loops around one block. The annotation ``epu`` of a loop says where it runs:
``row<i>``/``col<i>`` over the PE array (digit i), ``ring`` over the columns modulo the ring, ``local`` in the instruction's
hardware loops, ``dma`` in a DMA descriptor, ``pad`` in a padded copy. A loop without annotation is stepped by the sequencer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LOOP_KEY = "epu"
TAP_KEY = "epu.tap"

Key = int  # identity of a TVM variable
Affine = tuple[int, tuple[tuple[Key, int], ...]]  # constant + sum of coefficient * variable
Expression = tuple[
    Any, ...
]  # ("imm", v) ("scalar", name) ("load", Key, indices) ("lut", Key, expr) ("op", name, dtype, *args)


@dataclass(frozen=True)
class Loop:
    """One loop of a nest."""

    var: Key
    extent: int
    kind: str


@dataclass(frozen=True)
class BufferInfo:
    """A buffer of the PrimFunc: a parameter, or an allocation in ``scope``."""

    key: Key
    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: str


@dataclass(frozen=True)
class Access:
    """One element of a buffer as affine indices of loop variables."""

    buffer: Key
    indices: tuple[Affine, ...]


@dataclass(frozen=True)
class Nest:
    """Loops around ``target = value``, or around ``target = fold(target, value)``.

    ``bounds`` holds, for a padded copy, (variable affine, low, high) conditions under which ``value`` is read.
    """

    loops: tuple[Loop, ...]
    target: Access
    value: Expression
    fold: str = ""  # "", "add", "max", "min", "add24"
    tap: str = ""

    @property
    def array_loops(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if loop.kind[:3] in ("row", "col"))

    def of_kind(self, prefix: str) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if loop.kind.startswith(prefix))


@dataclass(frozen=True)
class Repeat:
    """A loop stepped by the sequencer."""

    var: Key
    extent: int
    body: Tree


@dataclass(frozen=True)
class Sequence:
    steps: tuple[Tree, ...]


@dataclass(frozen=True)
class Allocate:
    buffers: tuple[Key, ...]
    body: Tree


Tree = Nest | Repeat | Sequence | Allocate


@dataclass
class Code:
    """A scheduled PrimFunc, read."""

    tree: Tree
    buffers: dict[Key, BufferInfo]
    params: tuple[tuple[str, Key | None], ...]  # (name, buffer key), None for scalars


def nests(tree: Tree) -> Iterator[Nest]:
    """All nests in program order."""
    if isinstance(tree, Nest):
        yield tree
    elif isinstance(tree, Sequence):
        for step in tree.steps:
            yield from nests(step)
    else:
        yield from nests(tree.body)


def touched(tree: Tree) -> set[Key]:
    """All buffers that a tree reads or writes."""
    found = set()
    for nest in nests(tree):
        found |= {nest.target.buffer, *(access.buffer for access in loads(nest.value))}
    return found


def loads(expression: Expression) -> Iterator[Access]:
    """All buffer elements that an expression reads, tables included."""
    if expression[0] == "load":
        yield Access(expression[1], expression[2])
    elif expression[0] == "lut":
        yield Access(expression[1], ())
        yield from loads(expression[2])
    elif expression[0] == "op":
        for argument in expression[3:]:
            yield from loads(argument)


def combine(terms: list[tuple[int, Affine]]) -> Affine:
    """Sum of factor * affine."""
    constant, coefficients = 0, {}  # type: int, dict[Key, int]
    for factor, (offset, parts) in terms:
        constant += factor * offset
        for var, coefficient in parts:
            coefficients[var] = coefficients.get(var, 0) + factor * coefficient
    return constant, tuple(sorted((v, c) for v, c in coefficients.items() if c))
