"""Splits an ONNX model into a chain of sub-models that run in turn on host and EPU."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from onnx import numpy_helper

from epu.onnx_cut import reads_of, sub_model
from epu.onnx_shapes import static_shape, value_types
from epu.quantization.session import with_runtime_types

SHAPE_READERS = ("Shape", "Size")  # known once the shape of what they read is

Named = tuple[onnx.NodeProto, str]  # a node and its unique name


@dataclass(frozen=True)
class Part:
    """One sub-model of the chain, and the names of its own nodes; nodes that depend on no input may be in several."""

    on_host: bool
    model: onnx.ModelProto
    nodes: tuple[str, ...]


def split(model: onnx.ModelProto, nodes: Sequence[Named], on_host: Collection[str]) -> list[Part]:
    """The fewest parts, in order, such that host nodes and EPU nodes alternate and each part needs earlier ones only.

    ``nodes`` are those of the model, sorted, with unique names; ``on_host`` names the nodes of the host.
    """
    if not on_host:
        return [Part(False, model, tuple(name for _, name in nodes))]
    wiring = _Wiring(_typed(model), nodes)
    levels = min((wiring.levels(on_host, first) for first in (0, 1)), key=lambda found: len(set(found.values())))
    return [wiring.part(level, levels, on_host) for level in sorted(set(levels.values()))]


def static_tensors(model: onnx.ModelProto, nodes: Iterable[Named]) -> set[str]:
    """Tensors that depend on no input: what is made of constants and of shapes alone."""
    types = value_types(model)
    known = {tensor.name for tensor in model.graph.initializer}
    for node, _ in nodes:
        shaped = node.op_type in SHAPE_READERS and _has_shape(types.get(node.input[0]))
        if shaped or reads_of(node) <= known:
            known.update(name for name in node.output if name)
    return known


def _has_shape(value: onnx.ValueInfoProto | None) -> bool:
    return value is not None and static_shape(value) is not None


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the type of each tensor; ONNX Runtime knows those of its own operators."""
    types = value_types(model)
    made = [name for node in model.graph.node for name in node.output if name]
    return model if all(name in types for name in made) else with_runtime_types(model)


class _Wiring:
    """Who makes and who reads what in one model."""

    def __init__(self, model: onnx.ModelProto, nodes: Sequence[Named]) -> None:
        self.model = model
        self.static = static_tensors(model, nodes)
        self.nodes = [(_renamed(node, name), name) for node, name in nodes]
        self.maker = {output: index for index, (node, _) in enumerate(self.nodes) for output in node.output if output}
        self.reads = [reads_of(node) for node, _ in self.nodes]
        self.outputs = {value.name for value in model.graph.output}

    @cached_property
    def moving(self) -> list[int]:
        """Nodes that belong to one part: those that depend on an input, or make an output of the model."""
        return [i for i, (node, _) in enumerate(self.nodes) if not self.is_free(node)]

    def is_free(self, node: onnx.NodeProto) -> bool:
        made = {name for name in node.output if name}
        return made <= self.static and not made & self.outputs

    def levels(self, on_host: Collection[str], host_parity: int) -> dict[int, int]:
        """The earliest part of each node; host nodes are in parts of ``host_parity``, EPU nodes in the others."""
        of_tensor: dict[str, int] = {}
        levels: dict[int, int] = {}
        for index in self.moving:
            node, name = self.nodes[index]
            parity = host_parity if name in on_host or self.is_constant(node) else 1 - host_parity
            earliest = max((of_tensor.get(read, 0) for read in self.reads[index]), default=0)
            levels[index] = earliest + (earliest + parity) % 2
            of_tensor.update(dict.fromkeys(node.output, levels[index]))
        return levels

    def is_constant(self, node: onnx.NodeProto) -> bool:
        """An output of the model that depends on no input: no kernel makes it."""
        return {name for name in node.output if name} <= self.static

    def part(self, level: int, levels: dict[int, int], on_host: Collection[str]) -> Part:
        own = [index for index in self.moving if levels[index] == level]
        shared, known = self._shared(own)
        nodes = [self.nodes[index][0] for index in sorted({*own, *shared})]
        made = {name for node in nodes for name in node.output if name}
        wanted = self.outputs.union(*(self.reads[i] for i in self.moving if levels[i] != level))
        read = dict.fromkeys(name for node in nodes for name in sorted(reads_of(node)))
        weights = {tensor.name for tensor in self.model.graph.initializer} | known.keys()
        starts = [name for name in read if name not in made and name not in weights]
        ends = [n for index in own for n in self.nodes[index][0].output if n in wanted]
        model = sub_model(self.model, nodes, starts, ends)
        model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in known.items())
        names = tuple(self.nodes[index][1] for index in own)
        first = self.nodes[own[0]]
        return Part(first[1] in on_host or self.is_constant(first[0]), model, names)

    def _shared(self, own: list[int]) -> tuple[set[int], dict[str, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]]:
        """Nodes without input that ``own`` needs, directly or not, and the shapes that it reads, as values."""
        shared: set[int] = set()
        known: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = {}
        pending = [name for index in own for name in self.reads[index]]
        while pending:
            name = pending.pop()
            index = self.maker.get(name)
            if index is None or index in shared or name in known or name not in self.static or index in own:
                continue
            node = self.nodes[index][0]
            if node.op_type in SHAPE_READERS:
                known[name] = self._shape_value(node)
                continue
            shared.add(index)
            pending += self.reads[index]
        return shared, known

    def _shape_value(self, node: onnx.NodeProto) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        shape = static_shape(value_types(self.model)[node.input[0]])
        assert shape is not None, f"the shape of '{node.input[0]}' is static"
        if node.op_type == "Size":
            return np.array(np.prod(shape, dtype=np.int64))
        bounds = {each.name: each.i for each in node.attribute}
        return np.array(shape[bounds.get("start", 0) : bounds.get("end", len(shape))], np.int64)


def _renamed(node: onnx.NodeProto, name: str) -> onnx.NodeProto:
    if node.name == name:
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = name
    return copy
