"""DQ → op → Q folded into one int8 operator → the same, with the float tensors that are int8 codes read as reals in the
graph, so that each stays observable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from epu.fixed_formats import SCALE
from epu.graph import Float, Graph, Node, Quantized, Tensor
from epu.operators.row import quantized, quantized_interval
from epu.passes.rewrite import is_per_tensor_byte

OWN_TENSORS = frozenset(
    {"QuantizedUnary", "SoftmaxInt8", "LayerNormDecomposed"}
)  # these name what they cover themselves


def name_folded_tensors(graph: Graph) -> Graph:
    """Covered tensors without entry → float tensors with the range of the codes."""
    named, nodes = dict(graph.tensors), []
    for node in graph.nodes:
        for name, source in {**decoded_tensors(node, graph), **moved_tensors(node, graph)}.items():
            named.setdefault(name, real(name, graph.tensors[source].shape, [graph.tensors[source]]))
        joined = joined_tensor(node, graph)
        if joined:
            node = replace(node, attrs={**node.attrs, "joined": {joined: tuple(node.inputs)}})
            inputs = [graph.tensors[name] for name in node.inputs]
            named.setdefault(joined, real(joined, graph.tensors[node.outputs[0]].shape, inputs))
        nodes.append(node)
    return replace(graph, nodes=nodes, tensors=named)


def real(name: str, shape: tuple[int, ...], sources: Sequence[Tensor]) -> Tensor:
    """A float tensor that holds what the codes of the sources mean."""
    ends = [end for source in sources for end in quantized_interval(quantized(source))]
    return Tensor(name, shape, Float(), None, (min(ends), max(ends)), SCALE)


def joined_tensor(node: Node, graph: Graph) -> str:
    """Float tensor of a covered Concat, which holds what the codes of the inputs mean; empty where there is none."""
    if node.op != "QLinearConcat" or any(graph.tensors[name].data is not None for name in node.inputs):
        return ""
    return next((tensors[0] for _, op, tensors in node.covers if op == "Concat"), "")


def decoded_tensors(node: Node, graph: Graph) -> dict[str, str]:
    """Tensor of a covered DequantizeLinear → the int8 tensor that it reads."""
    return {name: source for name, source in node.decodes.items() if is_per_tensor_byte(graph, source)}


def moved_tensors(node: Node, graph: Graph) -> dict[str, str]:
    """Float tensor of a covered move → the int8 output, which holds its codes."""
    if node.op in OWN_TENSORS or len(node.outputs) != 1 or not _is_move(node, graph):
        return {}
    moved = (name for _, op, tensors in node.covers if op == node.op for name in tensors)
    return {name: node.outputs[0] for name in moved if name not in node.outputs}


def _is_move(node: Node, graph: Graph) -> bool:
    """Whether input and output hold the same codes with the same per-tensor meaning."""
    if len([name for name in node.inputs if name and graph.tensors[name].data is None]) != 1 or not node.covers:
        return False
    source, target = graph.tensors[node.inputs[0]].type, graph.tensors[node.outputs[0]].type
    return isinstance(source, Quantized) and source == target and source.axis is None
