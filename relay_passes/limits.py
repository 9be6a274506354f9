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
    from epu.passes import recognise_unary_tables

    unranged = set() if calibrated else {name for name in graph.inputs if isinstance(graph.tensors[name].type, Float)}
    found = {}
    for node in recognise_unary_tables(graph).nodes:
        error = _integer_tensor(node, graph) or _broken_limit(node, graph) or _unranged_input(node, unranged)
        found.update({} if error is None else {node.name: error})
    return found


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
    plain = [name for name in node.inputs if name and isinstance(graph.tensors[name].type, Integer)]
    moved = [name for name in plain if graph.tensors[name].data is None]
    if not moved:
        return None
    return UnsupportedNode(
        f"ONNX node '{node.name}' ({node.op}): inputs must be float or quantised, found plain integers '{moved[0]}'. "
        "Leave it on the host."
    )


def _exclusion(name: str) -> UserError:
    return UnsupportedNode(f"ONNX node '{name}': excluded by the user. Remove it from exclude=[...].")
