"""Turns scheduled TIR into instructions. Reads loops, scopes, annotations and expressions; knows no operator."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from epu.simulator.instruction import Instruction
from epu.simulator.machine import Machine
from epu.simulator.operands import SIZES

from . import nest as tree
from .alu_code import compute, fold
from .kernel_code import KernelCode, LongCode, LrmHolding, TapPoint, extents
from .layout import box_of, row_major
from .lrm import LrmAllocator
from .movement_code import load, padded, store
from .nest import Code, Key, Nest
from .places import Places, Shapes, array_strides, variables, weighted
from .product_code import is_product, product

OCM_ALIGNMENT = 64


def emit(code: Code, machine: Machine, whole: Shapes | None = None, most: int | None = None) -> KernelCode:
    """Instructions for scheduled TIR whose parameters lie in OCM, those in ``whole`` as slices of arrays of that shape.

    Raises CapacityError where a PE's LRM is too small for the schedule's tiles, LongCode beyond ``most`` instructions.
    """
    emitter = _Emitter(code, machine, whole or {}, most)
    emitter.run(code.tree)
    taps, holdings = tuple(emitter.taps.values()), tuple(emitter.holdings.values())
    return KernelCode(tuple(emitter.code), taps, emitter.scratch_peak, emitter.lrm.peak, holdings)


class _Emitter:
    """Walks the tree: unrolls the sequencer's loops, allocates LRM and scratch, emits each nest."""

    def __init__(self, code: Code, machine: Machine, whole: Shapes, most: int | None) -> None:
        self.machine, self.places, self.most = machine, Places(code, whole), most
        self.lrm = LrmAllocator(machine.lrm_bytes)
        self.scratch = self.scratch_peak = 0
        self.code: list[Instruction] = []
        self.taps: dict[TapPoint, TapPoint] = {}  # by all but the pc: of a sum's steps the last counts
        self.holdings: dict[tuple[str, int, int], LrmHolding] = {}
        self.tapped: dict[Key, str] = {}  # stage of each observed buffer
        self.known: dict[int, list[tuple[tree.Tree, list[Key], list[Key]]]] = {}  # lifetimes by node

    def run(self, node: tree.Tree) -> None:
        if isinstance(node, Nest):
            self.nest(node)
        elif isinstance(node, tree.Sequence):
            for step in node.steps:
                self.run(step)
        elif isinstance(node, tree.Repeat):
            for index in range(node.extent):
                self.places.env[node.var] = index
                self.run(node.body)
        else:
            self.allocate(node)

    def allocate(self, node: tree.Allocate) -> None:
        """Scratch for the duration of a block, LRM for the steps between the first and the last that use a buffer."""
        places, scratch = self.places, self.scratch
        local = [key for key in node.buffers if places.is_lrm(key)]
        for key in node.buffers:
            if key not in local:
                places.address[key] = self.scratch
                size = prod(box_of(places.writer[key])) * SIZES[places.buffers[key].dtype]
                self.scratch += -(-size // OCM_ALIGNMENT) * OCM_ALIGNMENT
        self.scratch_peak = max(self.scratch_peak, self.scratch)
        started = {}
        for step, first, last in self.lifetimes(node, local):
            for key in first:
                places.address[key] = self.lrm.take(places.layout(key).bytes_per_pe)
                started[key] = len(self.code)
            self.run(step)
            for key in last:
                self.lrm.give(places.address[key], places.layout(key).bytes_per_pe)
                self.held(key, started[key])
        self.scratch = scratch

    def held(self, key: Key, first: int) -> None:
        """Write down who held LRM until now, unless an earlier tile did the same."""
        name, size = self.places.buffers[key].name, self.places.layout(key).bytes_per_pe
        holding = LrmHolding(name, self.places.address[key], size, first, len(self.code))
        self.holdings.setdefault(holding[:3], holding)

    def lifetimes(self, node: tree.Allocate, keys: list[Key]) -> list[tuple[tree.Tree, list[Key], list[Key]]]:
        """The steps of a block, each with the buffers that it uses first and last."""
        if id(node) not in self.known:
            steps = node.body.steps if isinstance(node.body, tree.Sequence) else (node.body,)
            used = {key: [k for k, step in enumerate(steps) if key in tree.touched(step)] for key in keys}
            self.known[id(node)] = [
                (step, [key for key in keys if used[key][0] == k], [key for key in keys if used[key][-1] == k])
                for k, step in enumerate(steps)
            ]
        return self.known[id(node)]

    def nest(self, nest: Nest) -> None:
        self.places.base[nest.target.buffer] = self.places.constants(nest.target.indices)
        self.code += self.instructions(nest)
        if self.most is not None and len(self.code) > self.most:
            raise LongCode(self.most)
        if nest.tap:
            self.tapped[nest.target.buffer] = nest.tap
        if nest.target.buffer in self.tapped:
            self.record(self.tap(nest, self.tapped[nest.target.buffer]))

    def instructions(self, nest: Nest) -> list[Instruction]:
        """Which kind of nest: a padded copy, a move, a sum of products, a fold, an expression."""
        places, target = self.places, nest.target.buffer
        sources = list(tree.loads(nest.value))
        if nest.of_kind("pad"):
            return list(padded(nest, places, self.lrm, self.machine))
        if not places.is_lrm(target):
            return [store(nest, sources[0], places)]
        if nest.value[0] == "load" and not places.is_lrm(sources[0].buffer):
            return [load(nest, sources[0], places)]
        if is_product(nest, places):
            return [product(nest, places)]
        return (fold if nest.fold else compute)(nest, places, self.lrm)

    def record(self, point: TapPoint) -> None:
        key = replace(point, pc=0)
        self.taps.pop(key, None)
        self.taps[key] = point

    def tap(self, nest: Nest, stage: str) -> TapPoint:
        """Where the elements just written belong in the stage's tensor."""
        places, grid, kept = self.places, self.places.grid(nest), variables(nest.target)
        steps = row_major(places.buffers[nest.target.buffer].shape, 1)
        strides = weighted(nest.target.indices, steps)
        loops = tuple(loop for loop in nest.of_kind("local") if loop.var in kept)
        offset = sum(value * step for value, step in zip(places.constants(nest.target.indices), steps))
        rows, cols = (
            array_strides(nest, strides, part, len(n)) for part, n in (("row", grid.rows), ("col", grid.cols))
        )
        operand = places.lrm_value(nest.target, nest).over(loops)
        local = tuple(strides.get(loop.var, 0) for loop in loops)
        return TapPoint(stage, len(self.code) - 1, grid, extents(loops), operand, offset, rows, cols, local)
