"""Fraction bits of a float tensor from its range, and the printed table of them."""

from __future__ import annotations

from math import frexp, isfinite

from epu.errors import UserError
from epu.graph import Fixed, Graph, Node

WORD_BITS = 31  # of an int32 beside its sign
CALIBRATION_HEADROOM = 2.0  # a calibrated range is what was seen, not what can come
MOST_FRACTION_BITS = 58  # what shifts of the machine reach
TRANGES, SCALE, CONSTANT, OP = "tranges", "scale", "constant", "op"  # where a range comes from
MASK = "mask"  # a range that "minus infinity" leaves on purpose

DISPLAY_OP = {
    "DequantizeLinear": "contrib.epu.dequantize",
    "Softmax": "nn.softmax",
    "SoftmaxInt8": "nn.softmax",
    "LayerNormalization": "nn.layer_norm",
    "LayerNormDecomposed": "nn.layer_norm",
    "QuadricCustomOp": "contrib.epu.quadric_custom_op",
}
HEADER = ("Source name", "Op", "Output 0 Range", "Output 0 Frac Bits", "Range from")


def fraction_bits(size: float, source: str, tensor: str) -> int:
    """The most fraction bits with which ``size`` (twice that of a calibrated range) stays within int32."""
    if not isfinite(size):
        raise UserError(
            f"tensor '{tensor}': its range must be finite, found {size}. "
            "Give calibrated ranges (trange_file=...) or quantise the tensor."
        )
    room = size * CALIBRATION_HEADROOM if source == TRANGES else size
    if room == 0:
        return WORD_BITS - 1
    return min(WORD_BITS - frexp(room)[1], MOST_FRACTION_BITS)


def fraction_table(graph: Graph, inner: bool = False) -> str:
    """One line per node with a fixed-point output: range, fraction bits, where the range comes from.

    Of recognised groups the dequantised and the last float tensor have a line; ``inner`` lists every covered tensor.
    """
    rows = [HEADER, *(row for node in graph.nodes for row in node_rows(graph, node, inner))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [" ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], " ".join("-" * width for width in widths), *lines[1:]])


def node_rows(graph: Graph, node: Node, inner: bool) -> list[tuple[str, ...]]:
    covered = [(name, op, tensors[0]) for name, op, tensors in node.covers]
    if not covered or (node.op == "LayerNormDecomposed" and not inner):
        return table_rows(graph, [(node.name, node.op, node.outputs[0])])
    return table_rows(graph, covered) if inner or node.op == "SoftmaxInt8" else []


def table_rows(graph: Graph, sources: list[tuple[str, str, str]]) -> list[tuple[str, ...]]:
    """Rows of those tensors that are fixed point."""
    rows: list[tuple[str, ...]] = []
    for name, op, tensor_name in sources:
        tensor = graph.tensors.get(tensor_name)
        if tensor is not None and isinstance(tensor.type, Fixed):
            low, high = tensor.range if tensor.range is not None else (0.0, 0.0)
            span = f"[{low:g}f, {high:g}f]"
            rows.append((name, DISPLAY_OP.get(op, op), span, str(tensor.type.frac), tensor.range_source))
    return rows
