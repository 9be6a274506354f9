"""Replacing subgraphs of an ONNX model by QuadricCustomOp nodes, each with the subgraph as its body (docs/custom_ops.md)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from epu.custom_ops import DOMAIN, OP_NAME, OP_TYPE, TENSORS, VERSION
from epu.errors import UserError
from epu.log import get_logger
from epu.names import near
from epu.onnx_cut import reads_of
from epu.onnx_load import ModelSource, load_model

IR_VERSION = 8  # of model-local functions

log = get_logger("custom_ops")


def replace_subgraphs(
    model: ModelSource, op_name: str, before: Sequence[str], after: str, **attributes: Any
) -> onnx.ModelProto:
    """Return the model with the nodes between the edges, and all others of their structure, as custom operators.

    ``before`` are the tensors that the example reads, in the order of the operator's inputs, ``after`` is the one that it
    makes; weights that it reads follow as further inputs. ``attributes`` are given to each node. Raises UserError for
    unknown edges, and where what lies within is read elsewhere.
    """
    whole = load_model(model, allow_dynamic=True)
    graph = _Index(whole)
    example = _example(graph, before, after)
    found = [example, *_others(graph, example)]
    result = _replaced(whole, graph, _in_order(graph, found), op_name, attributes)
    log.info(f"{op_name}: {len(found)} subgraphs of {len(example.nodes)} nodes each became {OP_TYPE}")
    left = Counter(node.op_type for node in result.graph.node if node.domain != DOMAIN)
    log.info(f"native operators: {dict(sorted(left.items()))}")
    return result


class _Index:
    """Who makes and who reads each tensor, and which are constant."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes = list(model.graph.node)
        self.maker = {name: k for k, node in enumerate(self.nodes) for name in node.output if name}
        self.constants = {each.name: each for each in model.graph.initializer}
        self.readers: dict[str, set[int]] = {}
        for k, node in enumerate(self.nodes):
            for name in reads_of(node):
                self.readers.setdefault(name, set()).add(k)
        self.outputs = {value.name for value in model.graph.output}
        self.names = self.maker.keys() | {value.name for value in model.graph.input}

    def require(self, name: str, argument: str) -> None:
        if name not in self.names:
            raise UserError(f"{argument}: the model has no computed tensor '{name}'. {near(name, self.names)}")

    def is_inlined(self, name: str) -> bool:
        """An integer constant that says a structure: a shape, axes, an index."""
        known = self.constants.get(name)
        return known is not None and known.data_type == onnx.TensorProto.INT64


@dataclass
class _Match:
    """One subgraph: the nodes of the model by number, in the order of the example, the edges, the weights."""

    after: str
    nodes: list[int] = field(default_factory=list)
    tensors: dict[str, str] = field(default_factory=dict)  # the example's tensor -> this one's

    def edges(self, names: Sequence[str]) -> list[str]:
        return [self.tensors[name] for name in names]


@dataclass
class _Example(_Match):
    before: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()


def _example(graph: _Index, before: Sequence[str], after: str) -> _Example:
    for name in before:
        graph.require(name, "before")
    graph.require(after, "after")
    needed = sorted(_between(graph, set(before), after))
    reads = [name for k in needed for name in graph.nodes[k].input if name]
    unread = [name for name in before if name not in reads]
    if unread:
        raise UserError(
            f"before: '{unread[0]}' must lead to '{after}', found no node that reads it between. Leave it out."
        )
    _require_flat(graph, needed)
    weights = tuple(dict.fromkeys(n for n in reads if n in graph.constants and not graph.is_inlined(n)))
    tensors = {name: name for k in needed for name in (*graph.nodes[k].input, *graph.nodes[k].output) if name}
    example = _Example(after, needed, tensors, tuple(before), weights)
    leak = _leak(graph, example)
    if leak:
        raise UserError(
            f"after: what lies between {list(before)} and '{after}' must be read within, found '{leak}' read elsewhere or an "
            "output of the model. Choose other edges."
        )
    return example


def _between(graph: _Index, before: set[str], after: str) -> set[int]:
    """Numbers of the nodes that compute ``after`` from ``before`` and constants."""
    needed: set[int] = set()
    pending = [after]
    while pending:
        name = pending.pop()
        if name in before or name in graph.constants or not name:
            continue
        if name not in graph.maker:
            raise UserError(f"before: '{after}' also needs '{name}', which {sorted(before)} do not cut off. Add it.")
        if graph.maker[name] not in needed:
            needed.add(graph.maker[name])
            pending += graph.nodes[graph.maker[name]].input
    return needed


def _require_flat(graph: _Index, numbers: Sequence[int]) -> None:
    for node in (graph.nodes[k] for k in numbers):
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            raise UserError(
                f"ONNX node '{node.name}' ({node.op_type}): what is replaced must hold no subgraphs, found one. "
                "Choose edges without it."
            )


def _leak(graph: _Index, match: _Match) -> str | None:
    """A tensor within that somebody outside needs."""
    inside = set(match.nodes)
    made = [name for k in match.nodes for name in graph.nodes[k].output if name and name != match.after]
    return next((n for n in made if n in graph.outputs or graph.readers.get(n, set()) - inside), None)


def _others(graph: _Index, example: _Example) -> Iterator[_Match]:
    """Subgraphs of the example's structure that share no node with it or with each other."""
    taken = set(example.nodes)
    root = graph.nodes[graph.maker[example.after]]
    position = list(root.output).index(example.after)
    for node in graph.nodes:
        if node.op_type != root.op_type or len(node.output) <= position:
            continue
        match = _matched(graph, example, node.output[position])
        if match is not None and not taken & set(match.nodes) and _leak(graph, match) is None:
            taken |= set(match.nodes)
            yield match


def _matched(graph: _Index, example: _Example, after: str) -> _Match | None:
    """The subgraph that ends at ``after``, walked beside the example from the end; None where they differ."""
    tensors: dict[str, str] = {}
    pending = [(example.after, after)]
    while pending:
        ours, theirs = pending.pop()
        if tensors.setdefault(ours, theirs) != theirs:
            return None
        if ours in example.before:
            if theirs not in graph.names:
                return None
        elif ours in graph.constants:
            if not _same_constant(graph, ours, theirs):
                return None
        else:
            pair = _same_node(graph, ours, theirs, tensors)
            if pair is None:
                return None
            pending += pair
    order = [graph.maker[tensors[_first_output(graph, k)]] for k in example.nodes]
    return _Match(after, order, tensors) if len(set(order)) == len(order) else None


def _first_output(graph: _Index, node: int) -> str:
    return next(name for name in graph.nodes[node].output if name)


def _same_node(graph: _Index, ours: str, theirs: str, tensors: Mapping[str, str]) -> list[tuple[str, str]] | None:
    """Their inputs side by side, where both nodes are the same operator."""
    if theirs not in graph.maker:
        return None
    one, other = graph.nodes[graph.maker[ours]], graph.nodes[graph.maker[theirs]]
    alike = (one.op_type, one.domain, len(one.input), list(one.output).index(ours)) == (
        other.op_type,
        other.domain,
        len(other.input),
        list(other.output).index(theirs),
    )
    if not alike or _attributes(one) != _attributes(other):
        return None
    pairs = list(zip(one.input, other.input, strict=True))
    if any(bool(a) != bool(b) for a, b in pairs):
        return None
    return [(a, b) for a, b in pairs if a and tensors.get(a) != b]


def _attributes(node: onnx.NodeProto) -> dict[str, bytes]:
    return {each.name: each.SerializeToString(deterministic=True) for each in node.attribute}


def _same_constant(graph: _Index, ours: str, theirs: str) -> bool:
    if theirs not in graph.constants:
        return False
    one, other = graph.constants[ours], graph.constants[theirs]
    if (one.data_type, len(one.dims)) != (other.data_type, len(other.dims)):
        return False
    inlined = graph.is_inlined(ours)
    return not inlined or np.array_equal(numpy_helper.to_array(one), numpy_helper.to_array(other))


def _in_order(graph: _Index, found: Sequence[_Match]) -> list[_Match]:
    """The example, which says the body, then all in the order of the model."""
    return sorted(found, key=lambda match: graph.maker[match.after])


def _replaced(
    whole: onnx.ModelProto, graph: _Index, found: Sequence[_Match], op_name: str, attributes: dict[str, Any]
) -> onnx.ModelProto:
    """A copy with one node per match, at the place of its last one, and the body as function."""
    example = next(each for each in found if isinstance(each, _Example))
    body = _Body(graph, example)
    result = onnx.ModelProto()
    result.CopyFrom(whole)
    known = sum(node.domain == DOMAIN and _op_name(node) == op_name for node in graph.nodes)
    op_type = _op_type(whole, op_name)
    last = {graph.maker[match.after]: number for number, match in enumerate(found, known)}
    gone = {k for match in found for k in match.nodes}
    del result.graph.node[:]
    for k, node in enumerate(graph.nodes):
        if k in last:
            result.graph.node.append(body.call(found[last[k] - known], op_name, op_type, last[k], attributes))
        elif k not in gone:
            result.graph.node.append(node)
    result.functions.append(body.function(whole, op_type, [OP_NAME, TENSORS, *attributes]))
    _tidy(result)
    return result


def _op_name(node: onnx.NodeProto) -> str:
    return next((each.s.decode() for each in node.attribute if each.name == OP_NAME), "")


def _op_type(model: onnx.ModelProto, op_name: str) -> str:
    """A type that no other body has: ONNX Runtime tells functions apart by domain and name, not by overload."""
    taken = {each.name for each in model.functions if each.domain == DOMAIN}
    stem = re.sub(r"\W", "_", f"{OP_TYPE}_{op_name}")
    names = (stem if not k else f"{stem}_{k}" for k in range(len(taken) + 1))
    return next(name for name in names if name not in taken)


class _Body:
    """The example's nodes as a function: tensors within are named after their operator and number."""

    def __init__(self, graph: _Index, example: _Example) -> None:
        self.graph, self.example = graph, example
        self.inputs = (*example.before, *example.weights)
        self.names = {name: f"input_{k}" for k, name in enumerate(self.inputs)} | {example.after: "output"}
        self.inner: dict[str, str] = {}  # the example's tensor -> name within
        count: Counter[str] = Counter()
        for k in example.nodes:
            node = graph.nodes[k]
            for name in node.output:
                if name and name not in self.names:
                    stem = node.op_type
                    self.inner[name] = f"{stem}_{count[stem]}" if count[stem] else stem
                    count[stem] += 1
        self.names.update(self.inner)

    def call(
        self, match: _Match, op_name: str, op_type: str, number: int, attributes: Mapping[str, Any]
    ) -> onnx.NodeProto:
        pairs = [f"{inner}={match.tensors[name]}" for name, inner in self.inner.items()]
        return helper.make_node(
            op_type,
            match.edges(self.inputs),
            [match.after],
            name=f"CustomOp/{op_name}{number}",
            domain=DOMAIN,
            **{OP_NAME: op_name, TENSORS: pairs, **attributes},
        )

    def function(self, model: onnx.ModelProto, op_type: str, attributes: Sequence[str]) -> onnx.FunctionProto:
        opsets = [each for each in model.opset_import if each.domain != DOMAIN]
        inputs = [self.names[name] for name in self.inputs]
        nodes = [*self._constants(), *map(self._node, self.example.nodes)]
        return helper.make_function(DOMAIN, op_type, inputs, ["output"], nodes, opsets, list(attributes))

    def _constants(self) -> Iterator[onnx.NodeProto]:
        reads = [name for k in self.example.nodes for name in self.graph.nodes[k].input]
        for name in dict.fromkeys(each for each in reads if self.graph.is_inlined(each)):
            self.names[name] = f"constant_{name}"
            yield helper.make_node("Constant", [], [self.names[name]], value=self.graph.constants[name])

    def _node(self, number: int) -> onnx.NodeProto:
        node = onnx.NodeProto()
        node.CopyFrom(self.graph.nodes[number])
        for place in (node.input, node.output):
            renamed = [self.names[name] if name else "" for name in place]
            del place[:]
            place.extend(renamed)
        return node


def _tidy(model: onnx.ModelProto) -> None:
    """The domain declared, no weight or type that nobody names."""
    if all(each.domain != DOMAIN for each in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, VERSION))
    model.ir_version = max(model.ir_version, IR_VERSION)
    graph = model.graph
    used = {name for node in graph.node for name in (*node.input, *node.output)}
    for field_ in (graph.initializer, graph.value_info):
        kept = [each for each in field_ if each.name in used]
        del field_[:]
        field_.extend(kept)
