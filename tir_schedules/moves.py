"""Family of moves: an output put together from boxes of its inputs, in OCM. Concat, Slice, Pad, Gather, Expand, Resize, …"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from .kernel import Kernel, Param
from .nest import LOOP_KEY
from .tvm_api import tir, tvm

FILL = -1


@dataclass(frozen=True)
class Run:
    """``count`` positions ``to``, ``to + step``, … of an output axis: the positions ``start``, ``start + stride``, … of
    the same axis of input ``source``, or ``FILL``."""

    to: int
    count: int
    start: int = 0
    stride: int = 1
    step: int = 1
    source: int = 0


@dataclass(frozen=True)
class MoveShape:
    """``axes`` lists the runs of each output axis; together they cover it. Inputs have the output's rank.

    A run with another source than 0 decides for its box. ``fill`` is the raw value of filled boxes.
    """

    out: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]
    axes: tuple[tuple[Run, ...], ...]
    dtype: str
    fill: int = 0

    def is_common(self, axis: int) -> bool:
        """Whether the axis passes through unchanged, all of it."""
        extents = {shape[axis] for shape in (self.out, *self.inputs)}
        return extents == {self.out[axis]} and self.axes[axis] == (Run(0, self.out[axis]),)

    def is_repeated(self, axis: int) -> bool:
        """Whether every position of the axis is the same single one of the inputs."""
        return {shape[axis] for shape in self.inputs} == {1} and self.axes[axis] == (Run(0, self.out[axis], 0, 0),)

    def resized(self, axis: int, extent: int) -> MoveShape:
        """The same with another extent of a common or repeated axis."""
        put = lambda items, item: (*items[:axis], item, *items[axis + 1 :])  # noqa: E731
        inputs = self.inputs
        if self.is_common(axis):
            inputs = tuple(put(shape, extent) for shape in inputs)
        return replace(
            self,
            out=put(self.out, extent),
            inputs=inputs,
            axes=put(self.axes, (replace(self.axes[axis][0], count=extent),)),
        )

    def collapsed(self) -> MoveShape:
        """Neighbouring common axes as one."""
        groups: list[list[int]] = []
        for axis in range(len(self.out)):
            both = groups and self.is_common(axis) and self.is_common(groups[-1][0])
            groups[-1].append(axis) if both else groups.append([axis])
        size = lambda shape, group: prod(shape[axis] for axis in group)  # noqa: E731
        return replace(
            self,
            out=tuple(size(self.out, group) for group in groups),
            inputs=tuple(tuple(size(shape, group) for group in groups) for shape in self.inputs),
            axes=tuple(
                self.axes[group[0]] if len(group) == 1 else (Run(0, size(self.out, group)),) for group in groups
            ),
        )

    def boxes(self) -> Iterator[tuple[Run, ...]]:
        """One run per axis."""
        return product(*self.axes)


def moves(s: MoveShape) -> Kernel:
    """Parameters X0, X1, … and Y; axis k is labelled ``d<k>`` where operands share it."""
    names = [f"X{k}" for k in range(len(s.inputs))]
    params = [Param(name, "input", shape, s.dtype) for name, shape in zip(names, s.inputs)]
    shared = [s.is_common(axis) for axis in range(len(s.out))]
    axes = {name: tuple(f"d{k}" if own else f"{name}.{k}" for k, own in enumerate(shared)) for name in names}
    axes["Y"] = tuple(f"d{k}" for k in range(len(s.out)))
    return Kernel(
        "moves",
        ("moves", s),
        (*params, Param("Y", "output", s.out, s.dtype)),
        {},
        axes,
        ("Y",),
        lambda machine, budget: {},
        function=lambda: _function(s, names),
    )


def scheduled_moves(kernel: Kernel) -> Any:
    """The kernel's module with every loop of every box annotated: each box is a copy from OCM to OCM."""
    schedule = tir.Schedule(kernel.prim_func())
    for block in schedule.get_child_blocks(schedule.get_block("root")):
        for loop in schedule.get_loops(block):
            schedule.annotate(loop, LOOP_KEY, "pad")
    return schedule.mod


def _function(s: MoveShape, names: list[str]) -> Any:
    """The PrimFunc: one nest of loops per box."""
    inputs = [tir.decl_buffer(shape, s.dtype, name) for name, shape in zip(names, s.inputs)]
    target = tir.decl_buffer(s.out, s.dtype, "Y")
    nests = [_nest(s, runs, inputs, target, f"box{k}") for k, runs in enumerate(s.boxes())]
    body = nests[0] if len(nests) == 1 else tir.SeqStmt(nests)
    root = tir.BlockRealize([], True, tir.Block([], [], [], "root", body))
    buffers = [*inputs, target]
    handles = [tir.Var(buffer.name, "handle") for buffer in buffers]
    function = tir.PrimFunc(handles, root, buffer_map=dict(zip(handles, buffers)))
    return function.with_attr("global_symbol", "main").with_attr("tir.noalias", True)


def _nest(s: MoveShape, runs: tuple[Run, ...], inputs: list[Any], target: Any, name: str) -> Any:
    loops = [tir.Var(f"i{k}", "int32") for k in range(len(runs))]
    sources = [run.source for run in runs]
    put = [run.to + loop * run.step for run, loop in zip(runs, loops)]
    reads, value = [], tir.const(s.fill, s.dtype)
    if FILL not in sources:
        source = inputs[sum(sources)]
        value = tir.BufferLoad(source, [run.start + loop * run.stride for run, loop in zip(runs, loops)])
        reads = [_whole(source)]
    stmt = tir.BlockRealize([], True, tir.Block([], reads, [_whole(target)], name, tir.BufferStore(target, value, put)))
    for loop, run in zip(reversed(loops), reversed(runs)):
        stmt = tir.For(loop, 0, run.count, tir.ForKind.SERIAL, stmt)
    return stmt


def _whole(buffer: Any) -> Any:
    return tir.BufferRegion(buffer, [tvm.ir.Range(0, extent) for extent in buffer.shape])
