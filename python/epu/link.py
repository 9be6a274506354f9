"""Addresses of everything, and the program: kernels with their transfers, memory map, debug map."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from epu.errors import UserError
from epu.first_fit import align
from epu.graph import Fixed, Graph, Integer, Quantized, Tensor
from epu.lowering.lowered import Lowered, dtype_of, root
from epu.occupancy import MemoryMap
from epu.ocm_split import Part, SplitKernel, StagePart, streams
from epu.plan import Plan, Step, Task, make_plan
from epu.simulator.control import Halt
from epu.simulator.instruction import Instruction
from epu.simulator.machine import Machine
from epu.simulator.operands import SIZES
from epu.simulator.program import Buffer, Constant, DebugMap, Decode, Derived, KernelSpan, Moved, Program, Tap
from epu.staging import PartStep, Stream

RAW_TYPES = {"int8": "i8", "uint8": "u8", "int32": "i32", "int64": "i64"}


class Layout:
    """Addresses of everything, and the program.

    ``views``: tensors that show another's bytes. ``split``: the parts of each kernel. Raises UserError for an output that no
    kernel computes.
    """

    def __init__(
        self, graph: Graph, views: dict[str, str], kernels: list[Lowered], split: list[SplitKernel], machine: Machine
    ) -> None:
        self.graph, self.views, self.kernels, self.split, self.machine = graph, views, kernels, split, machine
        self.ext_bytes = 0
        self.home = {name: self.external(_bytes(graph.tensors[name])) for name in graph.inputs}
        self.outputs = [(name, root(views, name)) for name in graph.outputs]
        produced = {name for kernel in kernels for name in kernel.outputs.values()}
        for name, source in self.outputs:
            if source not in produced:
                raise UserError(
                    f"graph output '{name}' is computed by no kernel (it is an input or a constant). Remove it from the outputs."
                )
            if source not in self.home:
                self.home[source] = self.external(_bytes(graph.tensors[source]))
        self.blocks: dict[bytes, int] = {}
        tasks = [self.task(kernel, each) for kernel, each in zip(kernels, split)]
        sizes = {name: _bytes(graph.tensors[name]) for task in tasks for name in task.tensors}
        kept = frozenset(source for _, source in self.outputs)
        self.plan: Plan = make_plan(tasks, sizes, self.home, kept, self.ext_bytes, machine.ocm_bytes)

    def external(self, size: int) -> int:
        address, self.ext_bytes = self.ext_bytes, self.ext_bytes + align(size)
        return address

    def task(self, kernel: Lowered, split: SplitKernel) -> Task:
        block = b"".join(_padded(kernel, param) for param in constant_offsets(kernel))
        if block not in self.blocks:
            self.blocks[block] = self.external(len(block)) if block else 0
        at = self.blocks[block]
        staged = self.rooted(kernel, split, at)
        apart = {stream.param for stream in staged}
        reads = dict.fromkeys(root(self.views, name) for param, name in kernel.inputs.items() if param not in apart)
        writes = tuple(name for param, name in kernel.outputs.items() if param not in apart)
        constants = 0 if staged else len(block)
        more = (staged, 1 if split.in_place else len(split.parts), split.depth)
        return Task(kernel.node.name, tuple(reads), writes, constants, at, split.scratch_bytes, *more)

    def program(self, name: str) -> Program:
        code: list[Instruction] = []
        spans, taps, derived, moved = [], [], [], []
        for index, (kernel, split, step) in enumerate(zip(self.kernels, self.split, self.plan.steps)):
            start = len(code)
            code += step.before
            each_step = step.parts * len(split.parts) if split.in_place else step.parts
            for part, transfers in zip(split.parts, each_step, strict=True):
                code += transfers.before
                taps += self.taps(kernel, part, len(code))
                code += self.linked(kernel, part, step, transfers)
                code += transfers.after
            code += step.after
            spans.append(self.span(kernel, start, len(code), step))
            derived += self.derived(kernel, index)
            moved += self.moved(kernel, index)
        code.append(Halt())
        return Program(
            machine=self.machine,
            code=tuple(code),
            ext_bytes=self.plan.ext_bytes,
            constants=tuple(Constant(address, block) for block, address in self.blocks.items() if block),
            inputs=tuple(self.buffer(each, ("ext", self.home[each])) for each in self.graph.inputs),
            outputs=tuple(self.buffer(each, ("ext", self.home[source])) for each, source in self.outputs),
            debug=DebugMap(tuple(spans), tuple(taps), tuple(derived), tuple(moved)),
            name=name,
        )

    def memory_map(self) -> MemoryMap:
        """Who holds which memory and when."""
        lrm = tuple(each.parts[0].code.lrm for each in self.split)
        return MemoryMap(self.plan.holdings, tuple(each.peak_lrm for each in self.split), lrm)

    def linked(self, kernel: Lowered, part: Part, step: Step, transfers: PartStep) -> list[Instruction]:
        from epu.tir_schedules.compile_kernel import Link

        base = {param: step.constants + offset for param, offset in constant_offsets(kernel).items()}
        base |= {
            param: step.places[root(self.views, name)][1] for param, name in {**kernel.inputs, **kernel.outputs}.items()
        }
        base |= {param: base[param] + offset for param, offset in part.offsets.items()}
        link = Link({**base, **transfers.staged, "": step.scratch}, kernel.scalars)
        return [link.link(instruction) for instruction in part.code.instructions]

    def span(self, kernel: Lowered, start: int, end: int, step: Step) -> KernelSpan:
        nodes = tuple(each[0] for each in kernel.node.covers) or (kernel.node.name,)
        inputs, outputs = (
            tuple(self.buffer(name, step.places[root(self.views, name)]) for name in dict.fromkeys(names.values()))
            for names in (kernel.inputs, kernel.outputs)
        )
        return KernelSpan(kernel.node.name, nodes, start, end, kernel.kernel.macs, inputs, outputs)

    def taps(self, kernel: Lowered, part: Part, offset: int) -> list[Tap]:
        """What can be observed in a part, as elements of the whole tensors."""
        found = []
        for point in part.code.taps:
            name = kernel.observed.get(point.stage)
            if name is None:
                continue
            tensor = self.graph.tensors[name]
            inside = StagePart(kernel.kernel, point.stage, part.ranges)
            first = inside.first + inside.offset(point.offset)
            where = (point.grid, point.loops, point.operand, tensor.shape, first)
            row, col, inner = (
                tuple(map(inside.offset, each)) for each in (point.row_strides, point.col_strides, point.strides)
            )
            found.append(Tap(name, offset + point.pc, *where, row, col, inner, decode_of(tensor)))
        return found

    def derived(self, kernel: Lowered, index: int) -> list[Derived]:
        whole = ((tensor, None, source, table) for tensor, (source, table) in kernel.derived.items())
        return [
            Derived(
                tensor,
                index,
                source,
                tuple(int(value) for value in table),
                -128 if dtype_of(self.graph.tensors[source]) == "int8" else 0,
                decode_of(self.graph.tensors[tensor]),
                columns,
            )
            for tensor, columns, source, table in (*whole, *kernel.pieces)
        ]

    def moved(self, kernel: Lowered, index: int) -> list[Moved]:
        made = [(self.graph.tensors[name], place) for name, place in kernel.moved.items()]
        return [Moved(tensor.name, index, *place, tensor.shape, decode_of(tensor)) for tensor, place in made]

    def buffer(self, name: str, place: tuple[str, int]) -> Buffer:
        tensor = self.graph.tensors[name]
        return Buffer(name, *place, tensor.shape, RAW_TYPES[dtype_of(tensor)], decode_of(tensor))

    def rooted(self, kernel: Lowered, split: SplitKernel, block_at: int) -> tuple[Stream, ...]:
        """The kernel's streams, their tensors those whose bytes they are."""
        at = {param: block_at + offset for param, offset in constant_offsets(kernel).items()}
        return tuple(replace(stream, tensor=root(self.views, stream.tensor)) for stream in streams(kernel, split, at))


def constant_offsets(kernel: Lowered) -> dict[str, int]:
    """Byte offset of each constant parameter in the kernel's block."""
    offsets, total = {}, 0
    for param in kernel.kernel.arrays:
        if param.name in kernel.constants:
            offsets[param.name] = total
            total += align(prod(param.shape) * SIZES[RAW_TYPES[param.dtype]])
    return offsets


def _padded(kernel: Lowered, name: str) -> bytes:
    param = next(each for each in kernel.kernel.arrays if each.name == name)
    array = np.asarray(kernel.constants[name])
    data = np.ascontiguousarray(array.astype(np.dtype(param.dtype).newbyteorder("<"))).tobytes()
    assert len(data) == prod(param.shape) * SIZES[RAW_TYPES[param.dtype]], f"constant {name} has another size"
    return data.ljust(align(len(data)), b"\0")


def _bytes(tensor: Tensor) -> int:
    return prod(tensor.shape) * SIZES[RAW_TYPES[dtype_of(tensor)]]


def decode_of(tensor: Tensor) -> Decode:
    """How the tensor's raw integers stand for reals."""
    kind = tensor.type
    if isinstance(kind, Fixed):
        return Decode("fx", frac=kind.frac)
    if isinstance(kind, Quantized):
        return Decode("q", scale=kind.scale, zero_point=kind.zero_point, axis=kind.axis or 0)
    assert isinstance(kind, Integer), f"tensor {tensor.name} has no integer type"
    return Decode("mask" if kind.dtype == "bool" else "int")
