"""Attaches tensors that no kernel computes, because they are int8 codes read another way, to a kernel that has the codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Graph
from epu.lowering.lowered import Lowered, dtype_of, root
from epu.operators.softmax import dequantize
from epu.passes.name_folded_tensors import decoded_tensors, moved_tensors
from epu.simulator.program import Columns

Views = Mapping[str, str]


def derive_folded(graph: Graph, views: Views, kernels: Sequence[Lowered], rounding: str) -> None:
    """Add to ``derived`` and ``pieces`` of the kernels: the float tensors of folded groups that are codes read as reals, and
    int8 views that came from such a group.

    What only reads codes shows those that its readers got; what moves them shows those that it made.
    """
    readers = _holders(views, [(kernel, kernel.inputs) for kernel in kernels])
    makers = _holders(views, [(kernel, kernel.outputs) for kernel in kernels])
    read, made = {**makers, **readers}, {**readers, **makers}
    for node in graph.nodes:
        own = read if node.outputs[0] in views else made
        for name, source in decoded_tensors(node, graph).items():
            _attach(name, source, graph, read.get(root(views, source)), rounding)
        for name, source in moved_tensors(node, graph).items():
            _attach(name, source, graph, own.get(root(views, source)), rounding)
        for name, sources in node.attrs.get("joined", {}).items():
            holders = [(source, read[root(views, source)]) for source in sources]
            _join(name, int(node.attrs["axis"]), holders, graph, rounding)
        if own is read and node.covers:
            _attach(node.outputs[0], node.outputs[0], graph, own.get(root(views, node.outputs[0])), rounding)


Holder = tuple[Lowered, str]  # a kernel, and its operand that has the codes


def _holders(views: Views, operands: Sequence[tuple[Lowered, Mapping[str, str]]]) -> dict[str, Holder]:
    """Tensor → the first kernel with an operand of the same bytes."""
    found: dict[str, Holder] = {}
    for kernel, names in operands:
        for name in names.values():
            found.setdefault(root(views, name), (kernel, name))
    return found


def _join(name: str, axis: int, sources: Sequence[tuple[str, Holder]], graph: Graph, rounding: str) -> None:
    """The float tensor of a concatenation, piece by piece."""
    shape, first = graph.tensors[name].shape, 0
    axis %= len(shape)
    for source, (kernel, operand) in sources:
        width = prod(graph.tensors[source].shape[axis:])
        columns = Columns(shape, prod(shape[:axis]), first, width)
        kernel.pieces.append((name, columns, operand, _table(name, source, graph, rounding)))
        first += width


def _attach(name: str, source: str, graph: Graph, holder: Holder | None, rounding: str) -> None:
    if holder is None:
        return  # the codes are a graph input that no kernel reads
    kernel, operand = holder
    kernel.derived[name] = (operand, _table(name, source, graph, rounding))


def _table(name: str, source: str, graph: Graph, rounding: str) -> NDArray[Any]:
    """The raw value of each code of ``source``, from the lowest."""
    codes = np.arange(-128, 128) if dtype_of(graph.tensors[source]) == "int8" else np.arange(256)
    codes = codes.astype(np.int64)
    return codes if name == source else dequantize(graph.tensors[source], graph.tensors[name], codes, rounding)
