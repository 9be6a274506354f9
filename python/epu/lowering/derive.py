"""Attaches tensors that no kernel computes, because they are int8 codes read another way, to a kernel that has the codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from epu.graph import Graph
from epu.lowering.lowered import Lowered, dtype_of
from epu.operators.softmax import dequantize
from epu.passes.name_folded_tensors import decoded_tensors, moved_tensors

Views = Mapping[str, str]


def derive_folded(graph: Graph, views: Views, kernels: Sequence[Lowered], rounding: str) -> None:
    """Add to ``derived`` of the kernels: the float tensors of folded groups that are codes read as reals, and int8 views
    that came from such a group.

    What only reads codes shows those that its readers got; what moves them shows those that it made.
    """
    readers = _holders(views, [(kernel, kernel.inputs) for kernel in kernels])
    makers = _holders(views, [(kernel, kernel.outputs) for kernel in kernels])
    shown, made = {**makers, **readers}, {**readers, **makers}
    for node in graph.nodes:
        is_view = node.outputs[0] in views
        for name, source in decoded_tensors(node, graph).items():
            _attach(name, source, graph, shown.get(_root(views, source)), rounding)
        for name, source in moved_tensors(node, graph).items():
            _attach(name, source, graph, (shown if is_view else made).get(_root(views, source)), rounding)
        if is_view and node.covers:
            _attach(node.outputs[0], node.outputs[0], graph, shown.get(_root(views, node.outputs[0])), rounding)


Holder = tuple[Lowered, str]  # a kernel, and its operand that has the codes


def _holders(views: Views, operands: Sequence[tuple[Lowered, Mapping[str, str]]]) -> dict[str, Holder]:
    """Tensor → the first kernel with an operand of the same bytes."""
    found: dict[str, Holder] = {}
    for kernel, names in operands:
        for name in names.values():
            found.setdefault(_root(views, name), (kernel, name))
    return found


def _attach(name: str, source: str, graph: Graph, holder: Holder | None, rounding: str) -> None:
    if holder is None:
        return  # the codes are a graph input that no kernel reads
    kernel, operand = holder
    codes = np.arange(-128, 128) if dtype_of(graph.tensors[source]) == "int8" else np.arange(256)
    codes = codes.astype(np.int64)
    table = codes if name == source else dequantize(graph.tensors[source], graph.tensors[name], codes, rounding)
    kernel.derived[name] = (operand, table)


def _root(views: Views, name: str) -> str:
    while name in views:
        name = views[name]
    return name
