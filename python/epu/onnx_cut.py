"""Cutting a sub-model out of an ONNX model between named tensor edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from epu.errors import UserError
from epu.names import near
from epu.onnx_load import ModelSource, load_model
from epu.onnx_shapes import graph_inputs, infer_shapes, value_types


def cut_onnx(
    model: ModelSource, cut_before: Sequence[str] | None = None, cut_after: Sequence[str] | None = None
) -> onnx.ModelProto:
    """Return the sub-model from the edges ``cut_before`` to the edges ``cut_after``.

    An edge is a tensor name; a node name stands for the inputs (``cut_before``) or outputs (``cut_after``) of the
    node. None means the inputs or outputs of the model. Nodes, tensors and weights keep their names, what is not
    needed goes, and the new inputs and outputs have the inferred types and shapes. Raises UserError for an unknown
    edge, for one whose type cannot be inferred, and for edges that do not cut the model.
    """
    whole = load_model(model, allow_dynamic=True)
    graph = whole.graph
    weights = {tensor.name for tensor in graph.initializer}
    starts = _edges(graph, cut_before, "cut_before", [value.name for value in graph_inputs(whole)])
    ends = _edges(graph, cut_after, "cut_after", [value.name for value in graph.output])
    _check_edges(starts, ends, weights)
    nodes = _between(graph, starts, ends, weights)
    _check_apart(nodes, starts)
    used = {name for node in nodes for name in reads_of(node)}
    if cut_before is None:
        starts = [name for name in starts if name in used]
    _check_used(starts, ends, used)
    return infer_shapes(sub_model(whole, nodes, starts, ends))


def _edges(graph: onnx.GraphProto, edges: Sequence[str] | None, argument: str, default: list[str]) -> list[str]:
    """Return the tensor names that ``edges`` means."""
    if edges is None:
        return default
    if isinstance(edges, str) or not edges:
        raise UserError(f"{argument} must be a list of tensor or node names, found {edges!r}. Write ['tensor name'].")
    tensors = {value.name for value in graph.input} | {name for node in graph.node for name in node.output}
    tensors |= {tensor.name for tensor in graph.initializer}
    nodes = {node.name: node for node in graph.node if node.name}
    found: list[str] = []
    for edge in edges:
        if edge in tensors:
            found.append(edge)
        elif edge in nodes:
            found += _edges_of(graph, nodes[edge], argument)
        else:
            raise UserError(
                f"{argument}: the model has no tensor or node '{edge}'. {near(edge, tensors | nodes.keys())}"
            )
    return list(dict.fromkeys(found))


def _edges_of(graph: onnx.GraphProto, node: onnx.NodeProto, argument: str) -> list[str]:
    if argument == "cut_after":
        return [name for name in node.output if name]
    constant = {tensor.name for tensor in graph.initializer}
    constant |= {name for other in graph.node if other.op_type == "Constant" for name in other.output}
    return [name for name in node.input if name and name not in constant]


def _check_edges(starts: list[str], ends: list[str], weights: set[str]) -> None:
    for name in starts:
        if name in weights:
            raise UserError(f"cut_before: '{name}' is a weight, not an edge. Name a tensor that a node computes.")
    for name in ends:
        if name in starts or name in weights:
            raise UserError(f"cut_after: no node lies before '{name}'. Name a tensor further on.")


def _between(graph: onnx.GraphProto, starts: list[str], ends: list[str], weights: set[str]) -> list[onnx.NodeProto]:
    """Return, in graph order, the nodes that compute ``ends`` from ``starts`` and weights."""
    maker = {name: index for index, node in enumerate(graph.node) for name in node.output}
    needed: set[int] = set()
    known = {*starts, *weights}
    pending = [(end, end) for end in reversed(ends)]
    while pending:
        name, end = pending.pop()
        if name in known:
            continue
        if name not in maker:
            raise UserError(
                f"cut_before: '{end}' also needs input '{name}', which the edges {starts} do not cut off. "
                f"Add '{name}' to cut_before, or an edge between it and '{end}'."
            )
        known.add(name)
        needed.add(maker[name])
        pending += [(read, end) for read in reads_of(graph.node[maker[name]])]
    return [node for index, node in enumerate(graph.node) if index in needed]


def reads_of(node: onnx.NodeProto) -> set[str]:
    """Return the tensors a node reads, those its subgraphs take from outside included."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            names |= _captured(graph)
    return names


def _captured(graph: onnx.GraphProto) -> set[str]:
    own = {value.name for value in (*graph.input, *graph.initializer)}
    own |= {name for node in graph.node for name in node.output}
    read = {name for node in graph.node for name in reads_of(node)} | {value.name for value in graph.output}
    return read - own


def _check_apart(nodes: list[onnx.NodeProto], starts: list[str]) -> None:
    for node in nodes:
        for name in node.output:
            if name in starts:
                raise UserError(
                    f"cut_before: node '{node.name}' computes '{name}' but is needed past the edges. "
                    f"Add its other outputs to cut_before: {[other for other in node.output if other != name]}."
                )


def _check_used(starts: list[str], ends: list[str], used: set[str]) -> None:
    for name in starts:
        if name not in used:
            raise UserError(f"cut_before: {ends} do not depend on '{name}' past the other edges. Remove it.")


def sub_model(
    whole: onnx.ModelProto, nodes: list[onnx.NodeProto], starts: list[str], ends: list[str]
) -> onnx.ModelProto:
    """The model of ``nodes`` alone, from the tensors ``starts`` to the tensors ``ends``.

    Raises UserError for an edge whose type ``whole`` does not state.
    """
    types = value_types(whole)
    made = {name for node in nodes for name in node.output}
    used = {name for node in nodes for name in reads_of(node)}
    cut = onnx.ModelProto()
    cut.CopyFrom(whole)
    graph = cut.graph
    graph.CopyFrom(onnx.GraphProto(name=whole.graph.name, doc_string=whole.graph.doc_string))
    graph.node.extend(nodes)
    graph.initializer.extend(tensor for tensor in whole.graph.initializer if tensor.name in used)
    graph.input.extend(_typed(types, starts))
    graph.output.extend(_typed(types, ends))
    graph.value_info.extend(v for v in whole.graph.value_info if v.name in made and v.name not in ends)
    return cut


def _typed(types: dict[str, onnx.ValueInfoProto], names: Iterable[str]) -> list[onnx.ValueInfoProto]:
    for name in names:
        if name not in types or not types[name].type.HasField("tensor_type"):
            raise UserError(f"edge '{name}': its type cannot be inferred. Cut at another tensor nearby.")
    return [types[name] for name in names]
