"""Turn float tensors into fixed point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from epu.fixed_formats import fraction_bits
from epu.graph import Fixed, Float, Graph, Node, Tensor
from epu.operators import OPERATORS, Operator
from epu.operators.row import magnitude
from epu.simulator.fixed_point import encode_real
from epu.simulator.program import Decode


def assign_fraction_bits(graph: Graph) -> Graph:
    """``Float`` with a range becomes ``Fixed``: as many fraction bits as the range and the readers' needs allow, or those
    that the operator decides (moves keep their input's); constants become raw int32. Needs ``assign_ranges`` before."""
    tensors = {name: fixed_tensor(graph, tensor) for name, tensor in graph.tensors.items()}
    graph = replace(graph, tensors=tensors)
    for node, row in rows(graph):
        if row.formats is not None:
            for name, bits in row.formats(node, graph).items():
                tensors[name] = replace(tensors[name], type=Fixed(bits))
    return graph


def rows(graph: Graph) -> Iterator[tuple[Node, Operator]]:
    return ((node, OPERATORS[node.op]) for node in graph.nodes if node.op in OPERATORS)


def fixed_tensor(graph: Graph, tensor: Tensor) -> Tensor:
    if not isinstance(tensor.type, Float) or tensor.range is None:
        return tensor
    sizes = [magnitude(tensor.range)]
    sizes += [
        OPERATORS[node.op].input_size(tensor.range) for node in graph.consumers(tensor.name) if node.op in OPERATORS
    ]
    kind = Fixed(fraction_bits(max(sizes), tensor.range_source, tensor.name))
    return replace(tensor, type=kind, data=raw_constant(tensor, kind))


def raw_constant(tensor: Tensor, kind: Fixed) -> NDArray[Any] | None:
    if tensor.data is None:
        return None
    return encode_real(Decode("fx", kind.frac, (), (), 0), tensor.data)
