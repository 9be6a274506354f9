"""Folds what a model computes from constants and shapes, whatever the operators, so that only work on data is left."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from epu.onnx_promote import reads
from epu.onnx_shapes import infer_shapes, static_shape, value_types

Values = dict[str, NDArray[Any]]

NEVER_FOLDED = frozenset({"DequantizeLinear"})  # an int8 weight stays int8
RANDOM = frozenset("RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial".split())
SHAPE_ONLY = frozenset({"Shape", "Size", "EyeLike"})  # read no values
MASKED = -8192.0  # in place of -inf before a softmax: its exponential is 0 wherever scores span less than 8000
MASK_MOVES = frozenset("Add Cast Concat Expand Identity Reshape Transpose Unsqueeze Where".split())


def fold_known(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which what depends on constants and shapes alone is an initializer, and a decided If or Where is gone."""
    model = infer_shapes(model)
    while True:
        values = _known_values(model)
        nodes = [each for node in model.graph.node for each in _decided(node, values, model)]
        if len(nodes) == len(model.graph.node) and all(a is b for a, b in zip(nodes, model.graph.node)):
            return model
        model = infer_shapes(_with_nodes(model, nodes, values))


def finite_masks(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose masks (-inf in a constant that is added before a softmax) are finite, as fixed point must be."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    outputs = {value.name for value in model.graph.output}
    for tensor in result.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if _is_mask(values) and _ends_in_softmax(tensor.name, readers, outputs):
            tensor.CopyFrom(numpy_helper.from_array(np.maximum(values, values.dtype.type(MASKED)), tensor.name))
    return result


def _is_mask(values: NDArray[Any]) -> bool:
    """Some -inf, but no row of nothing else, whose softmax is NaN."""
    if values.dtype.kind != "f" or not np.isneginf(values).any():
        return False
    return bool(np.isfinite(values[~np.isneginf(values)]).all()) and not (
        values.ndim and np.isneginf(values).all(axis=-1).any() and values.size > 1
    )


def _ends_in_softmax(name: str, readers: dict[str, list[onnx.NodeProto]], outputs: set[str]) -> bool:
    if name in outputs or not readers.get(name):
        return False
    return all(
        node.op_type == "Softmax" or (node.op_type in MASK_MOVES and _ends_in_softmax(node.output[0], readers, outputs))
        for node in readers[name]
    )


def infinity_tests(model: onnx.ModelProto) -> dict[str, str]:
    """Output of each comparison of data with a constant infinity, and the tensor compared: false where that is finite."""
    infinite = {tensor.name for tensor in model.graph.initializer if _is_infinite(numpy_helper.to_array(tensor))}
    pairs = [(node, set(node.input) & infinite) for node in model.graph.node if node.op_type == "Equal"]
    return {node.output[0]: (set(node.input) - found).pop() for node, found in pairs if len(found) == 1}


def without_infinity_tests(model: onnx.ModelProto) -> onnx.ModelProto:
    """``Equal(x, infinity)`` of a known shape → false, folded into what reads it."""
    types, tests = value_types(model), infinity_tests(model)
    shapes = {name: static_shape(types[name]) for name in tests if name in types}
    values = {name: np.zeros(shape, np.bool_) for name, shape in shapes.items() if shape is not None}
    nodes = [node for node in model.graph.node if node.output[0] not in values]
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return fold_known(_with_nodes(model, nodes, {**constants, **values})) if values else model


def _is_infinite(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "f" and values.size > 0 and bool(np.isinf(values).all())


def _known_values(model: onnx.ModelProto) -> Values:
    """Initializers, and the outputs of the nodes that depend on them and on static shapes alone."""
    shapes = {name: static_shape(value) for name, value in value_types(model).items()}
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in NEVER_FOLDED | RANDOM or node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type in SHAPE_ONLY and node.input[0] not in values and shapes.get(node.input[0]) is not None:
            stand_in = np.broadcast_to(np.float32(0), shapes[node.input[0]] or ())
            values |= _evaluate(model, node, {node.input[0]: stand_in})
        elif all(name in values for name in reads(node) if name):
            values |= _evaluate(model, node, {name: values[name] for name in reads(node) if name})
    return values


def _evaluate(model: onnx.ModelProto, node: onnx.NodeProto, feeds: Values) -> Values:
    """The node's outputs; none where the reference does not know the node, which then stays."""
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()
    ]
    names = [name for name in node.output if name]
    graph = helper.make_graph([node], "node", inputs, [onnx.ValueInfoProto(name=name) for name in names])
    single = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results: Any = ReferenceEvaluator(single).run(None, feeds)
    except Exception:  # whatever the reference raises for a node it does not know
        return {}
    arrays = {name: np.asarray(result) for name, result in zip(names, results, strict=True)}
    return arrays if not any(isinstance(result, list) or result is None for result in results) else {}


def _decided(node: onnx.NodeProto, values: Values, model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """What is left of a node: nothing where its outputs are known, the branch taken of an If, the copy that a Where is."""
    if node.output and all(name in values for name in node.output if name):
        return
    if node.op_type == "If" and node.input[0] in values:
        yield from _branch(node, bool(values[node.input[0]].reshape(-1)[0]))
    elif node.op_type == "Where" and (chosen := _chosen(node, values, value_types(model))):
        yield helper.make_node("Identity", [chosen], node.output, name=node.name)
    else:
        yield node


def _chosen(node: onnx.NodeProto, values: Values, types: dict[str, onnx.ValueInfoProto]) -> str | None:
    """The operand a Where copies, where it does so for each element and without broadcasting."""
    condition = values.get(node.input[0])
    if condition is None or condition.size == 0 or condition.all() != condition.any():
        return None
    name = node.input[1 if condition.all() else 2]
    if name not in types or node.output[0] not in types:
        return None
    shape = static_shape(types[name])
    return name if shape is not None and shape == static_shape(types[node.output[0]]) else None


def _branch(node: onnx.NodeProto, taken: bool) -> Iterator[onnx.NodeProto]:
    wanted = "then_branch" if taken else "else_branch"
    graph = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
    for tensor in graph.initializer:
        yield helper.make_node("Constant", [], [tensor.name], value=tensor)
    yield from graph.node
    for inner, outer in zip(graph.output, node.output):
        yield helper.make_node("Identity", [inner.name], [outer], name=f"{node.name}:{outer}")


def _with_nodes(model: onnx.ModelProto, nodes: list[onnx.NodeProto], values: Values) -> onnx.ModelProto:
    """The model of ``nodes``, with those of ``values`` that they or the outputs read as initializers."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    needed = {name for node in nodes for name in reads(node)} | {value.name for value in model.graph.output}
    del result.graph.node[:], result.graph.initializer[:]
    result.graph.node.extend(nodes)
    kept = {name: value for name, value in values.items() if name in needed}
    result.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), name) for name, v in kept.items())
    return result
