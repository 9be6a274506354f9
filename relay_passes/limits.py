"""Which recognised nodes stay on the host: asks the operator table and the passes of the compiler above this folder."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from epu.graph import Float, Graph, Integer, Node
from epu.simulator.errors import UnsupportedNode, UserError

Refusals = dict[str, UserError]


def refusals(graph: Graph, on_host: Collection[str], *, excluded: Collection[str], calibrated: bool) -> Refusals:
    """Nodes of ``graph`` that must stay on the host although Relay's side knows them, each with its reason.

    ``on_host`` are nodes that stay there anyway, ``excluded`` those the user names. Where the model is not
    ``calibrated``, a float tensor that the host makes has no range, and only QuantizeLinear can read it.
    """
    found: Refusals = {name: _exclusion(name) for name in excluded}
    while True:
        more = _refused_once(_without(graph, {*on_host, *found}), calibrated)
        if not more:
            return {name: error for name, error in found.items() if name not in on_host}
        found.update(more)


def _without(graph: Graph, names: set[str]) -> Graph:
    """The nodes that are left for the EPU; what the others make becomes an input."""
    kept = [node for node in graph.nodes if node.name not in names]
    made = {output for node in kept for output in node.outputs}
    read = dict.fromkeys(name for node in kept for name in node.inputs if name and name not in made)
    inputs = [name for name in read if graph.tensors[name].data is None]
    host_reads = {name for node in graph.nodes if node.name in names for name in node.inputs}
    outputs = [name for name in made if name in host_reads or name in graph.outputs]
    return replace(graph, nodes=kept, inputs=inputs, outputs=outputs)


def _refused_once(graph: Graph, calibrated: bool) -> Refusals:
    """Refusals by rows and kernels; where there are none and the ranges follow from the graph, by trying to lower it."""
    unranged = set() if calibrated else {name for name in graph.inputs if isinstance(graph.tensors[name].type, Float)}
    recognised = _recognised(graph)
    found = {}
    for node in recognised.nodes:
        reasons = (_integer_tensor(node, graph), _broken_limit(node, recognised), _no_kernel(node))
        error = next(filter(None, (*reasons, _unranged_input(node, unranged))), None)
        found.update({} if error is None else {node.name: error})
    return found or ({} if calibrated else _not_lowered(graph))


def _recognised(graph: Graph) -> Graph:
    from epu.passes import fold_constants, recognise_layer_norm, recognise_softmax, recognise_unary_tables

    return recognise_softmax(recognise_unary_tables(recognise_layer_norm(fold_constants(graph))))


def _no_kernel(node: Node) -> UserError | None:
    from epu.lowering.table import EXPANDED, LOWERINGS, VIEWS

    if node.op in LOWERINGS or node.op in VIEWS | EXPANDED:
        return None
    return UnsupportedNode(
        f"ONNX node '{node.name}' ({node.op}): the EPU must have a kernel for the operator, found none. "
        "Leave it on the host."
    )


def lowering_refusals(graph: Graph, onnx_names: Collection[str]) -> Refusals:
    """ONNX nodes of a graph with ranges that break a limit or whose kernel refuses them, each with its reason."""
    from epu.compiler import PASSES
    from epu.passes import check_limits

    for each in PASSES:
        broken = {node.name: _broken_limit(node, graph) for node in graph.nodes} if each is check_limits else {}
        found = {name: error for name, error in broken.items() if error is not None}
        if found:
            return _of_onnx(found, graph, onnx_names)
        graph = each(graph)
    return _of_onnx(_refused_kernels(graph), graph, onnx_names)


def _of_onnx(refusals: Refusals, graph: Graph, onnx_names: Collection[str]) -> Refusals:
    """By ONNX node; what lies within one is named after it, and of a recognised group the operators count alone."""
    found: Refusals = {}
    for node in (each for each in graph.nodes if each.name in refusals):
        covered = [name for name, op, _ in node.covers if op not in ("DequantizeLinear", "QuantizeLinear")]
        names = covered or [node.name if node.name in onnx_names else node.name.rpartition(":")[0]]
        found.update({name: refusals[node.name] for name in names if name in onnx_names})
    return found


def _not_lowered(graph: Graph) -> Refusals:
    """Nodes whose kernel refuses their shapes or attributes."""
    from epu.compiler import PASSES

    names = {node.name for node in graph.nodes}
    for each in PASSES:
        graph = each(graph)
    refused = _refused_kernels(graph)  # what lies within a custom operator is named after it
    return {name if name in names else name.rpartition(":")[0]: error for name, error in refused.items()}


def _refused_kernels(graph: Graph) -> Refusals:
    from epu.lowering.table import VIEWS

    tried = {node.name: _lowering_error(node, graph) for node in graph.nodes if node.op not in VIEWS}
    return {name: error for name, error in tried.items() if error is not None}


def _lowering_error(node: Node, graph: Graph) -> UserError | None:
    from epu.lowering.table import lower

    try:
        lower(node, graph, "exact")
    except UserError as error:
        return error
    return None


def _broken_limit(node: Node, graph: Graph) -> UserError | None:
    from epu.passes import check_limits

    try:
        check_limits(replace(graph, nodes=[node]))
    except UnsupportedNode as error:
        return error
    return None


def _unranged_input(node: Node, unranged: set[str]) -> UserError | None:
    names = [name for name in node.inputs if name in unranged]
    if not names or node.op == "QuantizeLinear":
        return None
    return UnsupportedNode(
        f"ONNX node '{node.name}' ({node.op}): a float tensor from the host must be read by QuantizeLinear alone, which "
        f"gives its range, found '{names[0]}'. Quantise it, or compile with ChimeraJob and a .tranges file."
    )


def _integer_tensor(node: Node, graph: Graph) -> UserError | None:
    kinds = [(name, graph.tensors[name].type) for name in node.inputs if name and graph.tensors[name].data is None]
    moved = [(name, kind.dtype) for name, kind in kinds if isinstance(kind, Integer) and kind.dtype != "bool"]
    if not moved:
        return None
    return UnsupportedNode(
        f"ONNX node '{node.name}' ({node.op}): inputs must be float32 or quantised, found {moved[0][1]} '{moved[0][0]}'. "
        "It stays on the host, unless it is cast to float32 or quantised before."
    )


def _exclusion(name: str) -> UserError:
    return UnsupportedNode(f"ONNX node '{name}': excluded by the user. Remove it from exclude=[...].")
