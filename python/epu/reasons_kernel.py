"""What the kernel behind an ONNX tensor read, when every kernel is fed ORT's tensors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.exact_node import ModelNodes
from epu.graph import Fixed, Quantized, TensorType
from epu.lowering.lowered import root
from epu.observed import Compiled, NodeOutput, TensorMap, Tensors, encode_ort, graph_views, program_buffers
from epu.reasons_region import Leaf
from epu.reasons_terms import Terms, dequantized
from epu.simulator.program import Buffer, KernelSpan

Array = NDArray[Any]

WORD, FINEST = 31, 58  # bits of a magnitude, most fraction bits (docs/arithmetic.md, Fraction bits)


@dataclass(frozen=True)
class Reading:
    """The kernel of one tensor: ``leaf`` gives what it read and, in a fixed-point kernel, what it made on the way."""

    leaf: Leaf
    fixed: bool  # whether it reads fixed-point tensors
    inner: frozenset[str]  # tensors observed within it


class Kernels:
    """Which kernel made which ONNX tensor, and its operands in the isolated run."""

    def __init__(self, compiled: Compiled, places: TensorMap, nodes: ModelNodes, ort: Tensors) -> None:
        self._spans = compiled.program.debug.kernels
        self._program = compiled.program
        self._graph = compiled.graph
        self._places = places
        self._nodes = nodes
        self._ort = ort
        self._buffers = _overwritten(compiled, ort)
        self._read: dict[str, Terms | Array] = {}

    def reading(self, output: NodeOutput, tensor: str, iss: Tensors) -> Reading:
        """What the kernel of ``tensor`` read; ``iss`` are the tensors of the isolated run."""
        span = self._span(output, tensor)
        if span is None:
            return Reading(lambda name: self._elsewhere(name), False, frozenset())
        fixed = any(buffer.decode.kind == "fx" for buffer in span.inputs)
        index = self._spans.index(span)
        inner = frozenset(name for name, maker in self._maker.items() if maker == index and name in iss)
        inputs = {buffer.name for buffer in span.inputs}

        def leaf(name: str) -> Terms | Array | None:
            if name in inputs and name in self._buffers:
                return self._given(name)
            if fixed and name in inner:
                return self._shown(name, iss[name].reshape(self._ort[name].shape), self._places.type_of(name))
            own = self._maker_node(name) in span.nodes or self._decoded(name) in inputs
            return None if own else self._elsewhere(name)

        return Reading(leaf, fixed, inner)

    def unit(self, name: str) -> float:
        """One unit of a fixed-point operand; 0 for codes and for what the program does not know."""
        kind = self._type(name)
        return 2.0**-kind.frac if isinstance(kind, Fixed) else 0.0

    def unit_of(self, name: str, array: Array | None) -> float:
        """The same also of a constant that the program holds under another name, by the range of its values."""
        unit = self.unit(name)
        if unit or array is None or array.dtype.kind != "f":
            return unit
        return float(2.0 ** max(np.frexp(np.abs(array.astype(np.float64)).max(initial=0.0))[1] - WORD, -FINEST))

    def as_constant(self, name: str, array: Array) -> Array:
        """A constant operand in the fixed-point format that the compiler gave it."""
        unit = self.unit_of(name, array)
        return np.rint(array.astype(np.float64) / unit) * unit if unit and array.dtype.kind == "f" else array

    def clipped(self, name: str) -> bool:
        """Whether ORT's tensor exceeds the word that holds it here."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.decode.kind != "fx":
            return False
        return bool(np.abs(self._ort[name]).max(initial=0.0) * 2.0**buffer.decode.frac > 2.0**31)

    def _type(self, name: str) -> TensorType | None:
        tensor = self._graph.tensors.get(name)
        return tensor.type if tensor is not None else self._places.type_of(name)

    def _span(self, output: NodeOutput, tensor: str) -> KernelSpan | None:
        if tensor in self._maker:
            return self._spans[self._maker[tensor]]
        return next((span for span in self._spans if output.node in span.nodes), None)

    @cached_property
    def _maker(self) -> dict[str, int]:
        """Tensor → number of the first kernel that shows it; its outputs before its taps."""
        debug, found = self._program.debug, {}
        for number, span in enumerate(self._spans):
            found.update({buffer.name: number for buffer in span.outputs if buffer.name not in found})
        for tap in debug.taps:
            found.setdefault(tap.tensor, self._number_at(tap.pc))
        for derived in debug.derived:
            found.setdefault(derived.tensor, derived.kernel)
        for moved in debug.moved:
            found.setdefault(moved.tensor, moved.kernel)
        return found

    def _number_at(self, pc: int) -> int:
        return int(np.searchsorted(self._ends, pc, side="right"))

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.array([span.end_pc for span in self._spans], np.int64)

    def _maker_node(self, name: str) -> str:
        node = self._nodes.by_output.get(name)
        return node.name or f"{node.op_type}_{node.output[0]}" if node is not None else ""

    def _decoded(self, name: str) -> str:
        """The codes of a dequantised tensor, which a kernel that has them reads itself."""
        node = self._nodes.by_output.get(name)
        return node.input[0] if node is not None and node.op_type == "DequantizeLinear" else ""

    def _elsewhere(self, name: str) -> Terms | Array | None:
        """A tensor of another kernel, a graph input, or a constant subgraph; None: to be evaluated."""
        if name in self._buffers:
            return self._given(name)
        node = self._nodes.by_output.get(name)
        weights = node is not None and node.op_type == "DequantizeLinear" and not isinstance(self._type(name), Fixed)
        return self.as_constant(name, self._ort[name]) if self._places.is_folded(name) and not weights else None

    def _given(self, name: str) -> Terms | Array:
        """ORT's tensor in the kernel's format."""
        if name not in self._read:
            buffer, ort = self._buffers[name], self._ort[name]
            raw = encode_ort(buffer, ort).reshape(ort.shape)
            self._read[name] = self._shown(name, raw, _kind(buffer, raw))
        return self._read[name]

    def _shown(self, name: str, raw: Array, kind: TensorType) -> Terms | Array:
        """Codes where ORT holds codes, else what they stand for."""
        if isinstance(kind, Fixed):
            return np.ldexp(raw.astype(np.float64), -kind.frac)
        if isinstance(kind, Quantized) and self._ort[name].dtype.kind == "f":
            scale, zero = np.asarray(kind.scale, np.float32), np.asarray(kind.zero_point)
            return dequantized(raw, scale, zero, kind.axis or 0)
        return raw


def _overwritten(compiled: Compiled, ort: Tensors) -> dict[str, Buffer]:
    """Where each ONNX tensor that the isolated run overwrites lies; also under the name of a view of it."""
    every = {each.name: each for each in program_buffers(compiled.program)}
    views = graph_views(compiled)
    shown = {name: every[root(views, name)] for name in views if name in ort and root(views, name) in every}
    return {**shown, **{name: buffer for name, buffer in every.items() if name in ort}}


def _kind(buffer: Buffer, raw: Array) -> TensorType:
    decode = buffer.decode
    if decode.kind == "fx":
        return Fixed(decode.frac)
    axis = decode.axis if len(decode.scale) > 1 else None
    return Quantized(str(raw.dtype), decode.scale, decode.zero_point, axis)
