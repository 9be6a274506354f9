"""Attaches tensors that no kernel computes, because they are int8 codes read another way, to a kernel that has the codes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from epu.graph import Graph
from epu.lowering.lowered import Lowered, dtype_of
from epu.operators.softmax import dequantize
from epu.passes.name_folded_tensors import folded_tensors


def derive_folded(graph: Graph, views: Mapping[str, str], kernels: list[Lowered], rounding: str) -> None:
    """Add to ``derived`` of the kernels: float tensors covered by int8 moves, and int8 views that came from such a fold."""
    for node in graph.nodes:
        for name, source in folded_tensors(node, graph).items():
            _attach(name, source, graph, views, kernels, rounding)
        for name in node.outputs:
            if name in views and node.covers:
                _attach(name, name, graph, views, kernels, rounding)


def _attach(
    name: str, source: str, graph: Graph, views: Mapping[str, str], kernels: list[Lowered], rounding: str
) -> None:
    held = _holder(source, views, kernels)
    if held is None:
        return  # the codes are a graph input that no kernel reads
    kernel, operand = held
    codes = np.arange(-128, 128) if dtype_of(graph.tensors[source]) == "int8" else np.arange(256)
    codes = codes.astype(np.int64)
    table = codes if name == source else dequantize(graph.tensors[source], graph.tensors[name], codes, rounding)
    kernel.derived[name] = (operand, table)


def _holder(source: str, views: Mapping[str, str], kernels: list[Lowered]) -> tuple[Lowered, str] | None:
    """A kernel with an operand of the same bytes, and that operand's name."""
    wanted = _root(views, source)
    for kernel in kernels:
        for name in (*kernel.outputs.values(), *kernel.inputs.values()):
            if _root(views, name) == wanted:
                return kernel, name
    return None


def _root(views: Mapping[str, str], name: str) -> str:
    while name in views:
        name = views[name]
    return name
