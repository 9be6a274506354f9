"""Give every input of a concatenation the output's format."""

from __future__ import annotations

from dataclasses import replace

from epu.graph import Fixed, Graph, Node, Quantized, Tensor
from epu.operators.qlinear_tables import concat_table
from epu.operators.row import EXACT, ORT

CONCATS = ("Concat", "QLinearConcat")


def requantise_concats(graph: Graph) -> Graph:
    """``x -> concat`` becomes ``x -> requantised -> concat`` where the formats differ: a table of 256 entries for int8, a
    shift for fixed point. Needs ``assign_fraction_bits`` before."""
    tensors, nodes = dict(graph.tensors), []
    for node in graph.nodes:
        if node.op in CONCATS:
            inputs = []
            for index, name in enumerate(node.inputs):
                made, tensor = converted(node, index, tensors[name], tensors[node.outputs[0]])
                tensors[tensor.name] = tensor
                nodes += [made] if made else []
                inputs.append(tensor.name)
            node = replace(node, inputs=inputs)
        nodes.append(node)
    return replace(graph, nodes=nodes, tensors=tensors)


def converted(node: Node, index: int, source: Tensor, out: Tensor) -> tuple[Node | None, Tensor]:
    """An input in the output's format, and the node that makes it; the input itself where it has that format."""
    before, after = source.type, out.type
    name = f"{node.name}:input_{index}"
    if before == after:
        return None, source
    if isinstance(before, Quantized) and isinstance(after, Quantized):
        tables = {"table": concat_table(before, after, EXACT), "table_ort": concat_table(before, after, ORT)}
        maker = Node(name, "QuantizedUnary", [source.name], [name], {**tables, "inner": {}})
    elif isinstance(before, Fixed) and isinstance(after, Fixed):
        maker = Node(name, "Rescale", [source.name], [name])
    else:
        return None, source  # a limit of the operator refuses it
    return maker, replace(source, name=name, type=after, data=None)
