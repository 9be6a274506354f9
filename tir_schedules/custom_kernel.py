"""A user's PrimFunc as a kernel: its axes are read from its blocks, so that the scheduler can tile it as our own.

Each block has the name of the buffer that it writes and is one store; its indices are loop variables or constants, or, for a
table, a value. Raises ValueError, which says what does not fit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from epu.simulator.machine import Machine

from .kernel import Kernel, Param
from .tiling import Tiling, rows_over_array, spread
from .tvm_api import tir

Place = tuple[str, int]  # a buffer's dimension, or a block's loop
DTYPES = ("int8", "uint8", "int32", "int64")  # what the array computes with
ROW_SHARE = 16  # of 64: how much of a PE's elements a row may take


@dataclass(frozen=True)
class ScriptKernel(Kernel):
    """A kernel whose PrimFunc was given."""

    script: Any = None

    def prim_func(self, observe: bool = False) -> Any:
        return self.script


def is_prim_func(function: Any) -> bool:
    return isinstance(function, tir.PrimFunc)


def rekeyed(kernel: Kernel) -> Kernel:
    """A kernel of our families that a user built, with an identity that its body takes part in: a family's key does not
    tell bodies apart, and a body of the user's must not be taken for one of ours of the same name."""
    return replace(kernel, key=("custom", kernel.key, _digest(kernel.prim_func(observe=True))))


def _digest(function: Any) -> str:
    return hashlib.sha256(function.script().encode()).hexdigest()


def script_kernel(name: str, function: Any, constants: frozenset[str], inputs: frozenset[str]) -> Kernel:
    """The kernel of ``function``: array parameters named in ``constants`` and ``inputs``, one output, int64 scalars."""
    params = tuple(_params(function, constants, inputs))
    blocks = list(_blocks(function))
    outputs = [param.name for param in params if param.role == "output"]
    if len(outputs) != 1 or not blocks or blocks[-1].name != outputs[0]:
        written = [block.name for block in blocks]
        raise ValueError(
            f"one array parameter must be left as output, and the last block must have its name; found outputs {outputs} "
            f"and blocks {written}"
        )
    axes = _Axes(blocks)
    labels = axes.labels(params)
    reduced = {block.name: tuple(axes.of((block.name, k)) for k in block.reduced) for block in blocks if block.reduced}
    tiling = _tiling(labels[outputs[0]], axes.extents, {axis for each in reduced.values() for axis in each})
    key = ("custom", name, _digest(function), tuple(sorted(constants)))
    stages = tuple(block.name for block in blocks)
    return ScriptKernel("custom", key, params, {}, labels, stages, tiling, reduced, script=function)


def _params(function: Any, constants: frozenset[str], inputs: frozenset[str]) -> Iterator[Param]:
    for var in function.params:
        buffer = function.buffer_map.get(var)
        if buffer is None:
            if str(var.dtype) != "int64":
                raise ValueError(f"scalar parameters must be int64, found {var.name} of {var.dtype}")
            yield Param(str(var.name), "scalar")
            continue
        name = str(buffer.name)
        role = "constant" if name in constants else "input" if name in inputs else "output"
        yield Param(name, role, tuple(int(size) for size in buffer.shape), str(buffer.dtype))


@dataclass
class _Block:
    """One block: its loops' extents, which of them are reduced, and what it stores where."""

    name: str
    loops: dict[Any, int]  # loop variable -> its number
    extents: list[int]
    reduced: list[int]
    store: Any


def _blocks(function: Any) -> Iterator[_Block]:
    found: list[Any] = []
    tir.stmt_functor.post_order_visit(function.body, lambda each: found.append(each) if _is_stage(each) else None)
    for block in found:
        if not isinstance(block.body, tir.BufferStore) or str(block.body.buffer.name) != str(block.name_hint):
            raise ValueError(
                f"each block must be one store into the buffer of its name, found block '{block.name_hint}' with "
                f"{type(block.body).__name__}"
            )
        variables = list(block.iter_vars)
        reduced = [k for k, each in enumerate(variables) if each.iter_type == tir.IterVar.CommReduce]
        extents = [int(each.dom.extent) for each in variables]
        loops = {each.var: k for k, each in enumerate(variables)}
        yield _Block(str(block.name_hint), loops, extents, reduced, block.body)


def _is_stage(each: Any) -> bool:
    return isinstance(each, tir.Block) and len(each.iter_vars) > 0


@dataclass
class _Axes:
    """Which dimensions and loops are one axis: those that some index ties together."""

    blocks: list[_Block]
    parent: dict[Place, Place] = field(default_factory=dict)
    extents: dict[str, int] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    fixed: dict[Place, tuple[str, str]] = field(default_factory=dict)  # what is indexed otherwise: block, index

    def __post_init__(self) -> None:
        for block in self.blocks:
            self._access(block, block.store.buffer, block.store.indices, written=True)
            for load in _loads(block.store.value):
                self._access(block, load.buffer, load.indices, written=False)
        for block in self.blocks:
            names = [self.of((block.name, loop)) for loop in range(len(block.extents))]
            if len(set(names)) < len(names):
                raise ValueError(
                    f"the loops of block '{block.name}' must be different axes, found one tensor read along two"
                )
            self.extents.update(zip(names, block.extents))
        self._require_whole()

    def of(self, loop: tuple[str, int]) -> str:
        """The axis of a block's loop."""
        return self._name(("loop " + loop[0], loop[1]))

    def labels(self, params: tuple[Param, ...]) -> dict[str, tuple[str, ...]]:
        """The axis of each dimension of every stage and array parameter."""
        arrays = {param.name: len(param.shape) for param in params if param.role != "scalar"}
        ranks = {**arrays, **self.ranks}
        return {name: tuple(self._name((name, k)) for k in range(rank)) for name, rank in ranks.items()}

    def _access(self, block: _Block, buffer: Any, indices: Any, written: bool) -> None:
        name = str(buffer.name)
        if str(buffer.dtype) not in DTYPES:
            raise ValueError(f"buffers must be of {', '.join(DTYPES)}, found '{name}' of {buffer.dtype}")
        self.ranks[name] = len(indices)
        for dimension, index in enumerate(indices):
            if isinstance(index, tir.Var) and index in block.loops:
                self._join((name, dimension), ("loop " + block.name, block.loops[index]))
            elif isinstance(index, tir.IntImm) or (not written and _loads(index)):
                self.fixed[name, dimension] = (block.name, str(index))
            else:
                raise ValueError(
                    f"block '{block.name}' must index '{name}' by its loop variables, constants or, in a table, a value; "
                    f"found {index}"
                )

    def _require_whole(self) -> None:
        """What is indexed by a constant or a value lies in each PE whole, so no loop may spread it."""
        tied = set(self.parent) | set(self.parent.values())
        for place, (block, index) in self.fixed.items():
            extent = self.extents.get(self._name(place), 1)
            if place in tied and extent > 1:
                raise ValueError(
                    f"dimension {place[1]} of '{place[0]}' must be indexed by loop variables alone, or by none; found {index} "
                    f"in block '{block}'"
                )

    def _root(self, place: Place) -> Place:
        while place in self.parent:
            place = self.parent[place]
        return place

    def _join(self, one: Place, other: Place) -> None:
        first, second = self._root(one), self._root(other)
        if first != second:
            self.parent[max(first, second)] = min(first, second)

    def _name(self, place: Place) -> str:
        root = self._root(place)
        return f"{root[0]}.{root[1]}"


def _loads(value: Any) -> list[Any]:
    found: list[Any] = []
    tir.stmt_functor.post_order_visit(
        value, lambda each: found.append(each) if isinstance(each, tir.BufferLoad) else None
    )
    return found


def _tiling(output: tuple[str, ...], extents: Mapping[str, int], reduced: set[str]) -> Callable[[Machine, int], Tiling]:
    """Any axes over the array; with a reduction rows over it, each over neighbouring columns."""
    if not reduced:
        sizes = {axis: extents.get(axis, 1) for axis in output}
        return lambda machine, budget: spread(sizes, machine, budget)
    rows = [axis for axis in output if axis not in reduced]
    if len(reduced) > 1 or len(rows) != 1 or len(output) > 2 or output[0] != rows[0]:
        raise ValueError(
            f"a kernel with reductions must work on rows: an output (rows, length) or (rows,), reduced along the length; "
            f"found {len(output)} axes, {len(reduced)} of them reduced"
        )
    (inner,) = reduced
    count, length = extents[rows[0]], extents[inner]
    return lambda machine, budget: rows_over_array(
        rows[0], count, inner, length, machine, max(1, budget * ROW_SHARE // 64)
    )
