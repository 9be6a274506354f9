"""Opens custom nodes of an ONNX model: the body in the node's place, under the tensor names that the model had before."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from epu.custom_ops import DOMAIN, OP_TYPE, TENSORS
from epu.stages import Chain, EpuStage

Opened = tuple[onnx.ModelProto, frozenset[str]]


def open_bodies(model: onnx.ModelProto, keep: Collection[str] = ()) -> Opened:
    """The model with the bodies of its custom nodes in their place, and the names of the nodes within.

    A node within is named after its output in the body, the one that makes the output has the custom node's name. Nodes
    named in ``keep`` and those without body stay.
    """
    bodies = {(each.domain, each.name): each for each in model.functions}
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    del opened.graph.node[:]
    inner: list[str] = []
    for node in model.graph.node:
        body = bodies.get((node.domain, node.op_type)) if node.domain == DOMAIN and node.name not in keep else None
        if body is None:
            opened.graph.node.append(node)
            continue
        nodes = list(placed_nodes(node, body))
        opened.graph.node.extend(nodes)
        opened.graph.initializer.extend(_constants(node, body))
        inner += [each.name for each in nodes if each.name != node.name]
        _require_opsets(opened, body)
    return opened, frozenset(inner)


def body_tensors(node: onnx.NodeProto, body: onnx.FunctionProto) -> dict[str, str]:
    """Tensor within the body → its name in the opened model; edges and constants are left out."""
    names = _names(node, body)
    inner = [name for each in body.node if each.op_type != "Constant" for name in each.output if name]
    edges = {*body.input, *body.output}
    return {name: names.get(name, f"{node.name}:{name}") for name in inner if name not in edges}


def placed_nodes(node: onnx.NodeProto, body: onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """The body's nodes as they stand in an opened model."""
    names = _names(node, body)
    given = {each.name: each for each in node.attribute}
    for each in (each for each in body.node if each.op_type != "Constant"):
        placed = onnx.NodeProto()
        placed.CopyFrom(each)
        for place in (placed.input, placed.output):
            renamed = [names.get(name, f"{node.name}:{name}") if name else "" for name in place]
            del place[:]
            place.extend(renamed)
        makes = any(name in node.output for name in placed.output)
        placed.name = node.name if makes else f"{node.name}:{each.output[0]}"
        _bind_attributes(placed, given)
        yield placed


def _constants(node: onnx.NodeProto, body: onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    """The body's constants as weights."""
    names = _names(node, body)
    for each in body.node:
        if each.op_type == "Constant":
            values: Any = ReferenceEvaluator(each).run(None, {})
            yield numpy_helper.from_array(
                np.asarray(values[0]), names.get(each.output[0], f"{node.name}:{each.output[0]}")
            )


def open_chain(chain: Chain) -> tuple[Chain, frozenset[str]]:
    """The chain with the bodies of its compositions in their place, whose nodes the simulator shows like native ones, and
    the names of the nodes within. Custom nodes with a kernel of their own, and those of the host, stay."""
    if not chain.model.functions:
        return chain, frozenset()
    whole = {node.name for stage in chain.epu for node in stage.compiled.graph.nodes if node.op == OP_TYPE}
    whole |= {node.name for stage in chain.host for node in stage.model.graph.node}
    model, inner = open_bodies(chain.model, whole)
    stages = [
        replace(each, model=open_bodies(each.model, whole)[0]) if isinstance(each, EpuStage) else each
        for each in chain.stages
    ]
    return replace(chain, model=model, stages=tuple(stages)), inner


def _names(node: onnx.NodeProto, body: onnx.FunctionProto) -> dict[str, str]:
    """Tensor of the body → tensor of the model; an input that the node leaves out is absent."""
    known: list[bytes] = next((helper.get_attribute_value(each) for each in node.attribute if each.name == TENSORS), [])
    names = dict(text.decode().split("=", 1) for text in known)
    names.update(dict.fromkeys(body.input, ""))
    names.update(zip(body.input, node.input))
    names.update(zip(body.output, node.output))
    return names


def _bind_attributes(placed: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> None:
    """Attributes that refer to the custom node's become its values."""
    for attribute in list(placed.attribute):
        if not attribute.ref_attr_name:
            continue
        name, source = attribute.name, attribute.ref_attr_name
        placed.attribute.remove(attribute)
        if source in given:
            bound = placed.attribute.add()
            bound.CopyFrom(given[source])
            bound.name = name


def _require_opsets(model: onnx.ModelProto, body: onnx.FunctionProto) -> None:
    declared = {each.domain for each in model.opset_import}
    model.opset_import.extend(each for each in body.opset_import if each.domain not in declared)
