"""Give every float tensor the interval of reals it can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from epu.errors import UserError
from epu.fixed_formats import CONSTANT, OP, SCALE, TRANGES, fraction_bits
from epu.graph import Float, Graph, Node, Quantized, Tensor
from epu.operators import OPERATORS, Interval
from epu.operators.row import magnitude, quantized_interval

Ranges = Mapping[str, Interval] | None


def assign_ranges(graph: Graph, tranges: Ranges = None) -> Graph:
    """``Float`` tensors get ``range`` and ``range_source``: constants their own, dequantised tensors that of the scale,
    others the entry of ``tranges``, or their maker's own bound where its fraction bits are affordable; without
    ``tranges`` the bounds that follow from the operators.

    Raises UserError where ``tranges`` lacks a tensor, and where no bound follows for a graph input.
    """
    tensors = {name: constant_range(tensor) for name, tensor in graph.tensors.items()}
    graph = replace(graph, tensors=tensors)
    for name in graph.inputs:
        if is_open(tensors[name]):
            tensors[name] = input_range(graph, tensors[name], tranges)
    for node in graph.nodes:
        for name, bound in node_intervals(node, graph).items():
            if is_open(tensors[name]) and tranges and name in tranges and reads_words(node, graph):
                tensors[name] = calibrated(tensors[name], tranges)
            elif is_open(tensors[name]):
                tensors[name] = output_range(node, tensors[name], bound, tranges)
    return graph


def is_open(tensor: Tensor) -> bool:
    return isinstance(tensor.type, Float) and tensor.range is None


def constant_range(tensor: Tensor) -> Tensor:
    if tensor.data is None or not isinstance(tensor.type, Float):
        return tensor
    ends = (float(np.min(tensor.data)), float(np.max(tensor.data))) if tensor.data.size else (0.0, 0.0)
    return replace(tensor, range=ends, range_source=CONSTANT)


def node_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    row = OPERATORS.get(node.op)
    return row.intervals(node, graph) if row is not None and row.intervals is not None else {}


def reads_words(node: Node, graph: Graph) -> bool:
    """Whether a node dequantises int32, whose codes leave no bit for a fraction: what was seen decides."""
    kind = graph.tensors[node.inputs[0]].type if node.op == "DequantizeLinear" else None
    return isinstance(kind, Quantized) and kind.dtype == "int32"


def input_range(graph: Graph, tensor: Tensor, tranges: Ranges) -> Tensor:
    """From tranges, else from the scale of the QuantizeLinear nodes that are its only readers."""
    if tranges is not None and tensor.name in tranges:
        return calibrated(tensor, tranges)
    readers = graph.consumers(tensor.name)
    kinds = [graph.tensors[node.outputs[0]].type for node in readers if node.op == "QuantizeLinear"]
    spans = [quantized_interval(kind) for kind in kinds if isinstance(kind, Quantized)]
    if not spans or len(spans) != len(readers):
        raise missing(tensor, f"input of the program, read by {[node.name for node in readers]}")
    ends = (min(low for low, _ in spans), max(high for _, high in spans))
    return replace(tensor, range=ends, range_source=SCALE)


def output_range(node: Node, tensor: Tensor, bound: Interval, tranges: Ranges) -> Tensor:
    maker = next((op for _, op, outputs in node.covers if tensor.name in outputs), node.op)
    if maker == "DequantizeLinear":
        return replace(tensor, range=bound, range_source=SCALE)
    if tranges is None or tensor.range_source == OP:
        return replace(tensor, range=bound, range_source=OP)
    if tensor.name not in tranges:
        raise missing(tensor, f"made by ONNX node '{node.name}' ({node.op})")
    return bounded(calibrated(tensor, tranges), maker)


def bounded(tensor: Tensor, maker: str) -> Tensor:
    """A calibrated tensor, with its maker's own bound as range where the fraction bits that it costs are affordable."""
    own = OPERATORS[maker].own_bound if maker in OPERATORS else None
    if own is None or tensor.range is None:
        return tensor
    seen = fraction_bits(magnitude(tensor.range), TRANGES, tensor.name)
    if seen - fraction_bits(magnitude(own.interval), OP, tensor.name) > own.cost:
        return tensor
    return replace(tensor, range=own.interval, range_source=OP)


def calibrated(tensor: Tensor, tranges: Mapping[str, Interval]) -> Tensor:
    low, high = tranges[tensor.name]
    return replace(tensor, range=(float(low), float(high)), range_source=TRANGES)


def missing(tensor: Tensor, place: str) -> UserError:
    return UserError(
        f"tensor '{tensor.name}' ({place}): a float tensor needs a range, found none. "
        "Calibrate again with this model (epu quantize), or pass the .tranges file that belongs to it."
    )
