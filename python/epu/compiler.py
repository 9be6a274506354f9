"""Typed graph → program: the passes, the kernels, the plan, the link."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epu.custom_ops import OP_TYPE, not_schedulable
from epu.errors import CapacityError, EpuError
from epu.fixed_formats import fraction_table
from epu.graph import Float, Graph
from epu.link import Layout
from epu.log import get_logger
from epu.lowering.derive import derive_folded
from epu.lowering.lowered import Lowered, root
from epu.lowering.table import VIEWS, lower
from epu.mac_counter import mac_summary, total_macs
from epu.occupancy import MemoryMap
from epu.ocm_split import OcmSplitter
from epu.passes.assign_fraction_bits import assign_fraction_bits
from epu.passes.assign_ranges import assign_ranges
from epu.passes.check_limits import check_limits
from epu.passes.compose_custom_ops import compose_custom_ops
from epu.passes.copy_viewed_inputs import copy_viewed_inputs
from epu.passes.drop_empty import drop_empty
from epu.passes.expand_conv_transpose import expand_conv_transpose
from epu.passes.expand_linear_resize import expand_linear_resize
from epu.passes.expand_zero_points import expand_zero_points
from epu.passes.fold_constants import fold_constants
from epu.passes.name_folded_tensors import name_folded_tensors
from epu.passes.recognise_layer_norm import recognise_layer_norm
from epu.passes.recognise_softmax import recognise_softmax
from epu.passes.recognise_unary_tables import recognise_unary_tables
from epu.passes.reduce_last_axes import reduce_last_axes
from epu.passes.remove_identities import remove_identities
from epu.passes.requantise_concats import requantise_concats
from epu.passes.saturate_masks import saturate_masks
from epu.passes.split_layer_norm import split_every_layer_norm, split_layer_norm
from epu.passes.split_softmax import split_softmax
from epu.simulator.machine import Machine
from epu.simulator.program import Program

if TYPE_CHECKING:
    from epu.tir_schedules.kernel import Kernel
    from epu.tir_schedules.kernel_code import KernelCode

Array = NDArray[Any]
Pass = Callable[[Graph], Graph]

log, fx_log, mac_log = get_logger("codegen"), get_logger("fx"), get_logger("mac_counter")


def assign_missing(graph: Graph) -> Graph:
    """A graph with float tensors without range → each with what its operator implies."""
    missing = [t for t in graph.tensors.values() if isinstance(t.type, Float) and t.range is None]
    return assign_ranges(graph, None) if missing else graph


PASSES: tuple[Pass, ...] = (
    compose_custom_ops,
    fold_constants,
    remove_identities,
    drop_empty,
    recognise_layer_norm,
    recognise_unary_tables,
    recognise_softmax,
    split_softmax,
    split_layer_norm,
    name_folded_tensors,
    assign_missing,
    saturate_masks,
    assign_fraction_bits,
    requantise_concats,
    copy_viewed_inputs,
    reduce_last_axes,
    check_limits,
    expand_conv_transpose,
    expand_linear_resize,
    expand_zero_points,
)  # the order of compilation
AS_ORT: dict[Pass, Pass] = {split_layer_norm: split_every_layer_norm}  # what takes a pass's place with rounding "ort"


@dataclass(frozen=True)
class Peak:
    """Highest OCM and LRM byte used, external bytes of tensors that are neither inputs nor outputs."""

    ocm_bytes: int
    lrm_bytes: int
    ext_temp_bytes: int


@dataclass
class CompiledModule:
    """A compiled graph: program, typed graph, kernels, seconds per stage; who holds which memory, for reports."""

    program: Program
    graph: Graph
    kernels: list[Lowered]
    seconds: dict[str, float]
    peak: Peak
    gmacs: float
    views: dict[str, str] = field(default_factory=dict)
    memory: MemoryMap = MemoryMap()

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
            values.update({name: found[name] for name in kernel.outputs.values()})
            for name, (source, table) in kernel.derived.items():
                found[name] = _derive(values[self.source(source)], table).reshape(self.graph.tensors[name].shape)
            for name, (source, seen, order) in kernel.moved.items():
                found[name] = found[source].reshape(seen).transpose(order).reshape(self.graph.tensors[name].shape)
            for name, columns, source, table in kernel.pieces:
                whole = found.setdefault(name, np.zeros(columns.shape, np.int32))
                columns.of(whole)[...] = _derive(values[self.source(source)], table).reshape(columns.rows, -1)
            values.update(
                {name: np.asarray(force[name]) for name in kernel.outputs.values() if force and name in force}
            )
        for view in self.views:
            if self.source(view) in found:
                found[view] = found[self.source(view)].reshape(self.graph.tensors[view].shape)
        return found

    def source(self, name: str) -> str:
        """The tensor whose bytes ``name`` shows."""
        return root(self.views, name)


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
                graph = (AS_ORT.get(each, each) if self.rounding == "ort" else each)(graph)
            fx_log.info("\n" + fraction_table(graph))
        with self.stage("relay_to_tir"):
            views = {node.outputs[0]: node.inputs[0] for node in graph.nodes if node.op in VIEWS}
            kernels = [lower(node, graph, self.rounding) for node in graph.nodes if node.op not in VIEWS]
            derive_folded(graph, views, kernels, self.rounding)
            sums = {name: tensor for kernel in kernels for name, tensor in kernel.sums.items()}
            graph = replace(graph, tensors={**graph.tensors, **sums})
        with self.stage("adapt_and_order"):
            for line in mac_summary(graph):
                mac_log.info(line)
        with self.stage("lrm_alloc_loop"):
            splitter = OcmSplitter(self.machine, self.schedule)
            split = [splitter.split(kernel) for kernel in kernels]
        with self.stage("ext_split_relay"):
            layout = Layout(graph, views, kernels, split, self.machine)
        with self.stage("build_tir"):
            program = layout.program(self.name)
        lrm_bytes = max((each.peak_lrm for each in split), default=0)
        peak = Peak(layout.plan.ocm_bytes, lrm_bytes, layout.plan.temporary_bytes)
        gmacs = total_macs(graph) / 1e9
        return CompiledModule(program, graph, kernels, self.seconds, peak, gmacs, views, layout.memory_map())

    def schedule(
        self,
        lowered: Lowered,
        kernel: Kernel,
        whole: Mapping[str, tuple[int, ...]] | None = None,
        most: int | None = None,
    ) -> KernelCode:
        """Instructions of a node's kernel, or of a smaller one of its family (``whole``, ``most``: see ``compile_kernel``)."""
        from epu.tir_schedules.compile_kernel import compile_kernel

        try:
            return compile_kernel(kernel, self.machine, whole, most)
        except CapacityError as error:
            raise CapacityError(f"ONNX node '{lowered.node.name}' ({lowered.node.op}): {error}") from error
        except Exception as error:
            if lowered.node.op != OP_TYPE or isinstance(error, EpuError):
                raise
            raise not_schedulable(lowered.node, error) from error  # the kernel is the user's


__all__ = ["CompiledModule", "Peak", "compile_graph"]
