"""Typed graph → program: the passes, the kernels, the plan, the link."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epu.errors import CapacityError, UserError
from epu.fixed_formats import fraction_table
from epu.graph import Fixed, Float, Graph, Integer, Quantized, Tensor
from epu.log import get_logger
from epu.lowering.lowered import Lowered, dtype_of
from epu.lowering.table import VIEWS, lower
from epu.mac_counter import mac_summary, total_macs
from epu.passes.assign_fraction_bits import assign_fraction_bits
from epu.passes.assign_ranges import assign_ranges
from epu.passes.check_limits import check_limits
from epu.passes.fold_constants import fold_constants
from epu.passes.recognise_layer_norm import recognise_layer_norm
from epu.passes.recognise_softmax import recognise_softmax
from epu.passes.recognise_unary_tables import recognise_unary_tables
from epu.passes.remove_identities import remove_identities
from epu.plan import Plan, Task, align, make_plan
from epu.simulator.control import Halt
from epu.simulator.instruction import Instruction
from epu.simulator.machine import Machine
from epu.simulator.operands import SIZES
from epu.simulator.program import Buffer, Constant, DebugMap, Decode, Derived, KernelSpan, Program, Tap

if TYPE_CHECKING:
    from epu.tir_schedules.kernel_code import KernelCode

Array = NDArray[Any]
Pass = Callable[[Graph], Graph]

RAW_TYPES = {"int8": "i8", "uint8": "u8", "int32": "i32", "int64": "i64"}

log, fx_log, mac_log = get_logger("codegen"), get_logger("fx"), get_logger("mac_counter")


def assign_missing(graph: Graph) -> Graph:
    """A graph with float tensors without range → each with what its operator implies."""
    missing = [t for t in graph.tensors.values() if isinstance(t.type, Float) and t.range is None and t.data is None]
    return assign_ranges(graph, None) if missing else graph


PASSES: tuple[Pass, ...] = (
    fold_constants,
    remove_identities,
    recognise_layer_norm,
    recognise_unary_tables,
    recognise_softmax,
    assign_missing,
    assign_fraction_bits,
    check_limits,
)  # the order of compilation


@dataclass(frozen=True)
class Peak:
    """Highest OCM and LRM byte used, external bytes for spilled tensors."""

    ocm_bytes: int
    lrm_bytes: int
    ext_temp_bytes: int


@dataclass
class CompiledModule:
    """A compiled graph: program, typed graph, kernels, seconds per stage."""

    program: Program
    graph: Graph
    kernels: list[Lowered]
    seconds: dict[str, float]
    peak: Peak
    gmacs: float
    views: dict[str, str] = field(default_factory=dict)

    def golden(self, inputs: Mapping[str, Array], force: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Every tensor in raw integers, from the unscheduled kernels on LLVM.

        ``force`` replaces tensors by name once they are recorded, so that what follows reads the replacement.
        """
        from epu.tir_schedules import golden

        values: dict[str, Array] = {name: np.asarray(inputs[name]) for name in self.graph.inputs}
        found: dict[str, Array] = {}
        for kernel in self.kernels:
            arguments = {p: values[self.source(name)] for p, name in kernel.inputs.items()}
            result = golden.run(kernel.kernel, {**arguments, **kernel.constants, **kernel.scalars})
            for stage, name in {**kernel.observed, **kernel.outputs}.items():
                found[name] = result[stage].reshape(self.graph.tensors[name].shape)
            for name, (source, table) in kernel.derived.items():
                found[name] = _derive(values[self.source(source)], table).reshape(self.graph.tensors[name].shape)
            values.update({name: found[name] for name in kernel.outputs.values()})
            values.update(
                {name: np.asarray(force[name]) for name in kernel.outputs.values() if force and name in force}
            )
        for view in self.views:
            if self.source(view) in found:
                found[view] = found[self.source(view)].reshape(self.graph.tensors[view].shape)
        return found

    def source(self, name: str) -> str:
        """The tensor whose bytes ``name`` shows."""
        return _root(self.views, name)


def _root(views: Mapping[str, str], name: str) -> str:
    while name in views:
        name = views[name]
    return name


def _derive(codes: Array, table: Array) -> Array:
    low = -128 if codes.dtype == np.int8 else 0
    return np.asarray(table, np.int32)[codes.astype(np.int64) - low]


def compile_graph(graph: Graph, machine: Machine, *, rounding: str = "exact", name: str = "epu") -> CompiledModule:
    """Compile a typed graph for ``machine``.

    ``rounding``: "exact", or "ort" for ONNX Runtime's float32 rounding of requantisation. Raises UnsupportedNode for a
    node without kernel or outside its limits, CapacityError where the OCM or LRM is too small, UserError for bad ranges.
    """
    return _Driver(machine, rounding, name).run(graph)


class _Driver:
    def __init__(self, machine: Machine, rounding: str, name: str) -> None:
        self.machine, self.rounding, self.name = machine, rounding, name
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Log and time one stage."""
        log.info(f"START{name:=>45}")
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def run(self, graph: Graph) -> CompiledModule:
        with self.stage("quantize_to_cpu_runnable_fx"):
            for each in PASSES:
                graph = each(graph)
            fx_log.info("\n" + fraction_table(graph))
        with self.stage("relay_to_tir"):
            views = {node.outputs[0]: node.inputs[0] for node in graph.nodes if node.op in VIEWS}
            kernels = [lower(node, graph, self.rounding) for node in graph.nodes if node.op not in VIEWS]
        with self.stage("adapt_and_order"):
            for line in mac_summary(graph):
                mac_log.info(line)
        with self.stage("lrm_alloc_loop"):
            codes = [self.schedule(kernel) for kernel in kernels]
        with self.stage("ext_split_relay"):
            layout = _Layout(graph, views, kernels, codes, self.machine)
        with self.stage("build_tir"):
            program = layout.program(self.name)
        peak = Peak(layout.plan.ocm_bytes, max((code.peak_lrm for code in codes), default=0), layout.plan.spill_bytes)
        return CompiledModule(program, graph, kernels, self.seconds, peak, total_macs(graph) / 1e9, views)

    def schedule(self, kernel: Lowered) -> KernelCode:
        from epu.tir_schedules.compile_kernel import compile_kernel

        try:
            return compile_kernel(kernel.kernel, self.machine)
        except CapacityError as error:
            raise CapacityError(f"ONNX node '{kernel.node.name}' ({kernel.node.op}): {error}") from error


class _Layout:
    """Addresses of everything, and the program."""

    def __init__(
        self, graph: Graph, views: dict[str, str], kernels: list[Lowered], codes: list[KernelCode], machine: Machine
    ) -> None:
        self.graph, self.views, self.kernels, self.codes, self.machine = graph, views, kernels, codes, machine
        self.ext_bytes = 0
        self.home = {name: self.external(_bytes(graph.tensors[name])) for name in graph.inputs}
        self.outputs = [(name, _root(views, name)) for name in graph.outputs]
        produced = {name for kernel in kernels for name in kernel.outputs.values()}
        for name, source in self.outputs:
            if source not in produced:
                raise UserError(
                    f"graph output '{name}' is computed by no kernel (it is an input or a constant). Remove it from the outputs."
                )
            self.home.setdefault(source, self.external(_bytes(graph.tensors[source])))
        self.blocks: dict[bytes, int] = {}
        tasks = [self.task(kernel, code) for kernel, code in zip(kernels, codes)]
        names = {name for task in tasks for name in (*task.reads, *task.writes)}
        sizes = {name: _bytes(graph.tensors[name]) for name in names}
        kept = frozenset(source for _, source in self.outputs)
        self.plan: Plan = make_plan(tasks, sizes, self.home, kept, self.ext_bytes, machine.ocm_bytes)

    def external(self, size: int) -> int:
        address, self.ext_bytes = self.ext_bytes, self.ext_bytes + align(size)
        return address

    def task(self, kernel: Lowered, code: KernelCode) -> Task:
        block = self.constant_block(kernel)
        if block not in self.blocks:
            self.blocks[block] = self.external(len(block)) if block else 0
        reads = tuple(dict.fromkeys(_root(self.views, name) for name in kernel.inputs.values()))
        return Task(
            kernel.node.name, reads, tuple(kernel.outputs.values()), len(block), self.blocks[block], code.scratch_bytes
        )

    def constant_block(self, kernel: Lowered) -> bytes:
        """The kernel's constants one after the other, each aligned."""
        return b"".join(_padded(kernel, param) for param in constant_offsets(kernel))

    def program(self, name: str) -> Program:
        code: list[Instruction] = []
        spans, taps, derived = [], [], []
        for index, (kernel, body, step) in enumerate(zip(self.kernels, self.codes, self.plan.steps)):
            start = len(code)
            code += step.before
            taps += self.taps(kernel, body, len(code))
            code += self.linked(kernel, body, step)
            code += step.after
            spans.append(self.span(kernel, start, len(code), step.addresses))
            derived += self.derived(kernel, index)
        code.append(Halt())
        return Program(
            machine=self.machine,
            code=tuple(code),
            ext_bytes=self.plan.ext_bytes,
            constants=tuple(Constant(address, block) for block, address in self.blocks.items() if block),
            inputs=tuple(self.buffer(each, "ext", self.home[each]) for each in self.graph.inputs),
            outputs=tuple(self.buffer(each, "ext", self.home[source]) for each, source in self.outputs),
            debug=DebugMap(tuple(spans), tuple(taps), tuple(derived)),
            name=name,
        )

    def linked(self, kernel: Lowered, body: KernelCode, step: Any) -> list[Instruction]:
        from epu.tir_schedules.compile_kernel import Link

        base = {
            param: step.addresses[_root(self.views, name)]
            for param, name in {**kernel.inputs, **kernel.outputs}.items()
        }
        base.update({param: step.constants + offset for param, offset in constant_offsets(kernel).items()})
        link = Link({**base, "": step.scratch}, kernel.scalars)
        return [link.link(instruction) for instruction in body.instructions]

    def span(self, kernel: Lowered, start: int, end: int, addresses: dict[str, int]) -> KernelSpan:
        nodes = tuple(each[0] for each in kernel.node.covers) or (kernel.node.name,)
        reads = dict.fromkeys(kernel.inputs.values())
        inputs = tuple(self.buffer(name, "ocm", addresses[_root(self.views, name)]) for name in reads)
        outputs = tuple(self.buffer(name, "ocm", addresses[name]) for name in kernel.outputs.values())
        return KernelSpan(kernel.node.name, nodes, start, end, kernel.kernel.macs, inputs, outputs)

    def taps(self, kernel: Lowered, body: KernelCode, offset: int) -> list[Tap]:
        found = []
        for point in body.taps:
            name = kernel.observed.get(point.stage)
            if name is None:
                continue
            tensor = self.graph.tensors[name]
            where = (point.grid, point.loops, point.operand, tensor.shape, point.offset)
            strides = (point.row_strides, point.col_strides, point.strides)
            found.append(Tap(name, offset + point.pc, *where, *strides, decode_of(tensor)))
        return found

    def derived(self, kernel: Lowered, index: int) -> list[Derived]:
        return [
            Derived(
                tensor,
                index,
                source,
                tuple(int(value) for value in table),
                -128 if dtype_of(self.graph.tensors[source]) == "int8" else 0,
                decode_of(self.graph.tensors[tensor]),
            )
            for tensor, (source, table) in kernel.derived.items()
        ]

    def buffer(self, name: str, space: str, address: int) -> Buffer:
        tensor = self.graph.tensors[name]
        return Buffer(name, space, address, tensor.shape, RAW_TYPES[dtype_of(tensor)], decode_of(tensor))


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
    return Decode("int")


__all__ = ["CompiledModule", "Peak", "compile_graph"]
