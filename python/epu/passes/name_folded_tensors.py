"""DQ → move → Q folded into one int8 move → the same, with the float tensors that it covers in the graph, so that each stays
observable: they are the int8 codes, read as reals."""

from __future__ import annotations

from dataclasses import replace

from epu.fixed_formats import SCALE
from epu.graph import Float, Graph, Node, Quantized, Tensor
from epu.operators.row import quantized_interval

OWN_TENSORS = frozenset(
    {"QuantizedUnary", "SoftmaxInt8", "LayerNormDecomposed"}
)  # these name what they cover themselves


def name_folded_tensors(graph: Graph) -> Graph:
    """Covered tensors without entry → float tensors with the range of the codes."""
    named = dict(graph.tensors)
    for node in graph.nodes:
        for name, source in folded_tensors(node, graph).items():
            kind = graph.tensors[source].type
            assert isinstance(kind, Quantized)
            named.setdefault(
                name, Tensor(name, graph.tensors[source].shape, Float(), None, quantized_interval(kind), SCALE)
            )
    return replace(graph, tensors=named)


def folded_tensors(node: Node, graph: Graph) -> dict[str, str]:
    """Covered float tensor → the int8 tensor that holds its codes: the input for a DequantizeLinear, else the output."""
    if node.op in OWN_TENSORS or len(node.outputs) != 1 or not _is_move(node, graph):
        return {}
    found = {}
    for _, op, tensors in node.covers:
        for name in tensors:
            if name not in node.outputs:
                found[name] = node.inputs[0] if op == "DequantizeLinear" else node.outputs[0]
    return found


def _is_move(node: Node, graph: Graph) -> bool:
    """Whether input and output hold the same codes with the same per-tensor meaning."""
    if len([name for name in node.inputs if name and graph.tensors[name].data is None]) != 1 or not node.covers:
        return False
    source, target = graph.tensors[node.inputs[0]].type, graph.tensors[node.outputs[0]].type
    return isinstance(source, Quantized) and source == target and source.axis is None
