"""Custom operators while a model is quantised: opened into their bodies, which stay float, and closed again after.

ONNX Runtime puts the body of a function in the place of its call when it optimises a model, so the nodes would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
from onnx import helper

from epu.custom_bodies import body_tensors, open_bodies, placed_nodes
from epu.custom_ops import DOMAIN, TENSORS
from epu.errors import UserError


@dataclass(frozen=True)
class CustomNodes:
    """The custom nodes with a body of ``model``."""

    model: onnx.ModelProto

    def opened(self) -> onnx.ModelProto:
        return open_bodies(self.model)[0] if self.model.functions else self.model

    def kept_float(self, model: onnx.ModelProto) -> list[str]:
        """Nodes of an opened, optimised model that lie within custom nodes."""
        return [node.name for node in model.graph.node if any(_within(node, each.name) for each in self._nodes())]

    def closed(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """The opened model, optimised or quantised, with the custom nodes in the place of their bodies again."""
        custom = list(self._nodes())
        if not custom:
            return model
        result = onnx.ModelProto()
        result.CopyFrom(model)
        for node in custom:
            _close(result, node, self._body(node))
        _restore(result, self.model)
        return result

    def _nodes(self) -> Iterator[onnx.NodeProto]:
        known = {(each.domain, each.name) for each in self.model.functions}
        return (
            node for node in self.model.graph.node if (node.domain, node.op_type) in known and node.domain == DOMAIN
        )

    def _body(self, node: onnx.NodeProto) -> onnx.FunctionProto:
        return next(each for each in self.model.functions if (each.domain, each.name) == (node.domain, node.op_type))


def _within(node: onnx.NodeProto, custom: str) -> bool:
    return node.name == custom or node.name.startswith((f"{custom}:", f"{custom}/"))


def _close(model: onnx.ModelProto, node: onnx.NodeProto, body: onnx.FunctionProto) -> None:
    inside = [each for each in model.graph.node if _within(each, node.name)]
    made = {name for each in inside for name in each.output}
    if not set(node.output) <= made:
        raise _lost(node, node.output[0])
    closed = onnx.NodeProto()
    closed.CopyFrom(node)
    closed.input[:] = [_input(model, node, body, name) for name in node.input]
    for attribute in [each for each in closed.attribute if each.name == TENSORS]:
        closed.attribute.remove(attribute)
    pairs = [f"{inner}={name}" for inner, name in body_tensors(node, body).items()]
    closed.attribute.append(helper.make_attribute(TENSORS, pairs, attr_type=onnx.AttributeProto.STRINGS))
    nodes = [closed if each is inside[-1] else each for each in model.graph.node]
    kept = [each for each in nodes if each is closed or not any(each is gone for gone in inside)]
    copies = [onnx.NodeProto.FromString(each.SerializeToString()) for each in kept]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _input(model: onnx.ModelProto, node: onnx.NodeProto, body: onnx.FunctionProto, name: str) -> str:
    """What the first node within that read this input reads now; a weight stays."""
    for placed in placed_nodes(node, body):
        if name in placed.input:
            now = next((each for each in model.graph.node if each.name == placed.name), None)
            if now is None:
                break
            return now.input[list(placed.input).index(name)]
    raise _lost(node, name)


def _lost(node: onnx.NodeProto, tensor: str) -> UserError:
    return UserError(
        f"ONNX node '{node.name}' ({node.op_type}): its body must keep the tensors at its edges while the model is optimised, "
        f"found no '{tensor}'. Quantise the model first, then call epu.replace_subgraphs."
    )


def _restore(model: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Functions, their domain, weights that the closed nodes read, and nothing that only their bodies did."""
    model.functions.extend(original.functions)
    model.opset_import.extend(each for each in original.opset_import if each.domain == DOMAIN)
    graph = model.graph
    used = {name for node in graph.node for name in (*node.input, *node.output)} | {each.name for each in graph.output}
    held = {each.name for each in graph.initializer}
    graph.initializer.extend(t for t in original.graph.initializer if t.name in used and t.name not in held)
    for entries in (graph.initializer, graph.value_info):
        for entry in [each for each in entries if each.name not in used]:
            entries.remove(entry)
