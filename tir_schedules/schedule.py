"""Schedules a kernel for the array: tiles in OCM and LRM, loops annotated with the part of the machine that runs them."""

from __future__ import annotations

from typing import Any

from epu.simulator.machine import Machine

from .kernel import Kernel
from .moves import scheduled_moves
from .nest import LOOP_KEY, TAP_KEY
from .tensor_intrinsics import dot_intrinsic
from .tiling import Cut, Tiling
from .tvm_api import tir

LRM, OCM = "local.lrm", "global.ocm"
INNER = ("row", "col", "ring", "local")
UNIT = len(INNER) - 0.5  # loops of one step go just before the local ones


def schedule(kernel: Kernel, machine: Machine, budget: int) -> Any:
    """The scheduled module of ``kernel``; ``budget`` bounds the elements that one PE works on at a time."""
    if kernel.function is not None:
        return scheduled_moves(kernel)
    return _Scheduler(kernel, kernel.tiling(machine, budget)).run()


class _Scheduler:
    def __init__(self, kernel: Kernel, tiling: Tiling) -> None:
        self.kernel, self.tiling = kernel, tiling
        self.sch = tir.Schedule(kernel.prim_func())
        self.broadcast = kernel.broadcast(tiling)
        self.loop_axes: dict[str, list[tuple[Any, str]]] = {}  # annotated loops of a block, with their axes
        self.late: dict[str, list[tuple[Any, tuple[str, ...]]]] = {}  # inputs placed inside a reduction's steps
        self.positions = {
            part: {axis: k for k, axis in enumerate(a for a, cut in tiling.items() if getattr(cut, part) > 1)}
            for part in ("row", "col")
        }

    def run(self) -> Any:
        kernel, sch = self.kernel, self.sch
        main = kernel.stages[-1]
        store = sch.cache_write(sch.get_block(main), 0, LRM)
        attach = self.place_store(store, kernel.axes[main])
        others = [self.write_back(name) for name in kernel.outputs if name != main]
        for name in reversed(kernel.stages):
            self.place_stage(name, attach)
        for block, name in others:
            sch.reverse_compute_at(block, attach, preserve_unit_loops=True)
            self.cut(block, kernel.axes[name])
        self.read_inputs(attach)
        placed_late = {str(sch.get(block).name_hint) for blocks in self.late.values() for block, _ in blocks}
        for name in kernel.stages:
            if name not in kernel.padded and name not in placed_late:
                self.cut_stage(name)
        return sch.mod

    def place_store(self, block: Any, axes: tuple[str, ...]) -> Any:
        """Sequencer steps outermost, then the tile; the last step loop is where everything else attaches."""
        steps = self.cut(block, axes, steps=True)
        return steps[-1]

    def write_back(self, name: str) -> tuple[Any, str]:
        """A second output: kept in LRM for its readers, copied out by a block of its own."""
        return self.sch.cache_write(self.sch.get_block(name), 0, LRM), name

    def place_stage(self, name: str, attach: Any) -> None:
        block = self.sch.get_block(name)
        if name in self.kernel.padded:
            self.sch.set_scope(block, 0, OCM)
            for loop in self.sch.get_loops(block):
                self.sch.annotate(loop, LOOP_KEY, "pad")
            return
        if name not in self.kernel.outputs:
            self.sch.set_scope(block, 0, LRM)
        if self.inside_reduction(name):
            reader = next(stage for stage in self.kernel.stages if self.reads(stage, self.buffer(name)))
            self.late.setdefault(reader, []).append((block, self.kernel.axes[name]))
            return
        self.sch.compute_at(block, attach, preserve_unit_loops=True)
        if name in self.kernel.observed:
            self.sch.annotate(block, TAP_KEY, name)

    def inside_reduction(self, name: str) -> bool:
        """Whether a gathered stage is consumed by a reduction whose axes the sequencer steps."""
        if name not in self.kernel.gathers:
            return False
        stepped = {axis for axis, cut in self.tiling.items() if cut.step > 1}
        return any(stepped & set(axes) & set(self.kernel.axes[name]) for axes in self.kernel.reduced.values())

    def buffer(self, name: str) -> str:
        """Name of the buffer that a stage writes."""
        return str(self.sch.get(self.sch.get_block(name)).writes[0].buffer.name)

    def read_inputs(self, attach: Any) -> None:
        for param in self.kernel.params:
            if param.role in ("input", "constant") and param.name not in self.broadcast:
                self.read_input(param.name, attach)
        for name in self.kernel.stages:
            if name in self.kernel.padded:
                self.read_input(name, attach, self.buffer(name))

    def read_input(self, name: str, attach: Any, buffer: str = "") -> None:
        """Bring a parameter, or a stage in OCM (``buffer``), into LRM for its readers, unless a stage gathers it itself."""
        kernel, axes, buffer = self.kernel, self.kernel.axes[name], buffer or name
        readers = [stage for stage in kernel.stages if self.reads(stage, buffer)]
        if not readers or readers[0] in kernel.padded or readers[0] in kernel.gathers:
            return
        block = self.sch.cache_read(self.sch.get_block(readers[0]), buffer, LRM)
        reduced = kernel.reduced.get(readers[0], ())
        if any(self.tiling.get(axis, Cut()).step > 1 for axis in axes if axis in reduced):
            self.late.setdefault(readers[0], []).append((block, axes))
            return
        if any(self.tiling.get(axis, Cut()).step > 1 for axis in axes):
            self.sch.compute_at(block, attach, preserve_unit_loops=True)
        self.cut(block, axes)

    def reads(self, stage: str, name: str) -> bool:
        return any(region.buffer.name == name for region in self.sch.get(self.sch.get_block(stage)).reads)

    def cut_stage(self, name: str) -> None:
        """Cut a stage's own loops; a reduction gets its initial value in a nest of its own."""
        sch, kernel = self.sch, self.kernel
        block = sch.get_block(name)
        reduced = kernel.reduced.get(name, ())
        steps = self.cut(block, (*kernel.axes[name], *reduced), inside=reduced)
        for late, axes in self.late.get(name, ()):  # what a reduction reads step by step
            sch.compute_at(late, steps[-1], preserve_unit_loops=True)
            self.cut(late, axes)
        if not reduced:
            return
        own = self.loop_axes[name]
        spatial = [loop for loop, axis in own if axis not in reduced]
        kinds = [str(sch.get(loop).annotations[LOOP_KEY]) for loop in spatial]
        initial = sch.decompose_reduction(block, steps[0] if steps else own[0][0])
        for loop, kind in zip(sch.get_loops(initial)[len(sch.get_loops(initial)) - len(kinds) :], kinds):
            sch.annotate(loop, LOOP_KEY, kind)
        if name in kernel.dots:
            self.tensorize(name, own)

    def tensorize(self, name: str, own: list[tuple[Any, str]]) -> None:
        """Give the innermost sum to the PEs' multiply-accumulate units."""
        summed = [loop for loop, axis in own if axis in self.kernel.reduced[name] and self.is_sum(loop)]
        if not summed:
            return  # one product per PE and step: the loops around it say it all
        for loop in summed:  # the intrinsic's own loops carry no annotation
            self.sch.unannotate(loop, LOOP_KEY)
        operands = [str(each.op.name) for each in self.kernel.tensors[name].op.input_tensors]
        shapes = [self.dot_shape(name, operand) for operand in operands]
        dtypes = [str(self.kernel.tensors[operand].dtype) for operand in operands]
        scopes = ["global" if operand in self.broadcast else LRM for operand in operands]
        self.sch.tensorize(summed[0], dot_intrinsic(*shapes, tuple(dtypes), tuple(scopes)))  # type: ignore[arg-type]

    def is_sum(self, loop: Any) -> bool:
        """Whether a loop is a local one of more than one step."""
        found = self.sch.get(loop)
        return int(found.extent) > 1 and str(found.annotations[LOOP_KEY]) == "local"

    def dot_shape(self, name: str, operand: str) -> list[int]:
        """Extents of the operand's tile in one PE, from the first axis that is summed."""
        reduced = self.kernel.reduced[name]
        extents = [self.tiling[axis].local if axis in reduced else 1 for axis in self.kernel.axes[operand]]
        first = next(index for index, extent in enumerate(extents) if extent > 1)
        return extents[first:]

    def cut(self, block: Any, axes: tuple[str, ...], steps: bool = False, inside: tuple[str, ...] = ()) -> list[Any]:
        """Split the block's own loops by the tiling, order them, annotate them; returns its step loops."""
        sch = self.sch
        loops = sch.get_loops(block)
        own = loops[len(loops) - len(axes) :]
        unit = (
            []
            if not steps or any(self.tiling.get(axis, Cut()).step > 1 for axis in axes)
            else [sch.add_unit_loop(own[0])]
        )
        parts: list[tuple[float, int, str, Any, str]] = []  # (order, axis index, kind, loop, axis)
        for index, (axis, loop) in enumerate(zip(axes, own)):
            cut = self.tiling.get(axis, Cut())
            with_steps = steps or axis in inside
            if int(sch.get(loop).extent) == 1:
                parts.append((UNIT, index, "local", loop, axis))
                continue
            if axis not in self.tiling:
                parts.append((len(INNER), index, "local", loop, axis))
                continue
            factors = [("step", cut.step if with_steps else 1), *((part, getattr(cut, part)) for part in INNER)]
            kept = [(kind, factor) for kind, factor in factors if factor > 1] or [("local", 1)]
            pieces = sch.split(loop, [factor for _, factor in kept]) if len(kept) > 1 else [loop]
            for (kind, _), piece in zip(kept, pieces):
                order = ("step", *INNER).index(kind)
                name = f"{kind}{self.positions[kind][axis]}" if kind in ("row", "col") else kind
                parts.append((order, index, name, piece, axis))
        parts.sort(key=lambda part: part[:2])
        if len(parts) > 1:
            sch.reorder(*[part[3] for part in parts])
        for _, _, kind, loop, _ in parts:
            if kind != "step":
                sch.annotate(loop, LOOP_KEY, kind)
        self.loop_axes[str(sch.get(block).name_hint)] = [
            (loop, axis) for _, _, kind, loop, axis in parts if kind != "step"
        ]
        return [*unit, *(loop for _, _, kind, loop, _ in parts if kind == "step")]
