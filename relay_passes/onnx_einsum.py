"""ONNX Einsum → Relay: sums of what one operand alone has, then one product of matrices per pair of operands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from epu.relay_passes.onnx_elementwise import Converter
from epu.relay_passes.onnx_linear import matmul_expr
from epu.relay_passes.onnx_node import OnnxNode, Shape, Value
from epu.relay_passes.tvm_relay import relay


@dataclass(frozen=True)
class Term:
    """An operand, one label per axis."""

    labels: str
    value: Value

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self.labels, self.value.shape))


def einsum(node: OnnxNode) -> Value:
    """Labels without repetition or ellipsis; operands from left to right."""
    inputs, out = _parsed(node)
    terms = [Term(labels, node.input(index)) for index, labels in enumerate(inputs)]
    found = terms[0]
    for index, term in enumerate(terms[1:], start=1):
        needed = {*out, *(label for each in terms[index + 1 :] for label in each.labels)}
        found = _product(node, found, term, needed)
    result = _turned(node, _summed(node, found, set(out)), out).value
    return node.result(node.emit(relay.copy(result.expr)) if result is node.input(0) else result.expr, result.shape)


def _parsed(node: OnnxNode) -> tuple[list[str], str]:
    equation = re.sub(r"\s", "", node.text("equation", ""))
    left, arrow, right = equation.partition("->")
    inputs = left.split(",")
    labels = "".join(inputs)
    out = right if arrow else "".join(sorted(label for label in set(labels) if labels.count(label) == 1))
    repeated = any(len(set(each)) < len(each) for each in (*inputs, out))
    if "." in equation or repeated:
        raise node.refuse("labels must be letters, once per operand", equation, "Spell it with MatMul and Transpose")
    return inputs, out


def _summed(node: OnnxNode, term: Term, kept: set[str]) -> Term:
    """Without the axes that nothing else needs."""
    axes = tuple(axis for axis, label in enumerate(term.labels) if label not in kept)
    if not axes:
        return term
    labels = "".join(label for label in term.labels if label in kept)
    if term.value.data is not None:
        return Term(labels, term.value.map_data(term.value.data.sum(axis=axes, dtype=np.float32)))
    expr = node.emit(relay.sum(term.value.expr, axis=axes))
    return Term(labels, Value(tuple(term.sizes[label] for label in labels), term.value.dtype, expr))


def _turned(node: OnnxNode, term: Term, labels: str) -> Term:
    if term.labels == labels:
        return term
    order = [term.labels.index(label) for label in labels]
    if term.value.data is not None:
        return Term(labels, term.value.map_data(term.value.data.transpose(order)))
    shape = tuple(term.value.shape[axis] for axis in order)
    return Term(labels, Value(shape, term.value.dtype, node.emit(relay.transpose(term.value.expr, order))))


def _product(node: OnnxNode, left: Term, right: Term, needed: set[str]) -> Term:
    """Batch labels are in both and needed later, inner ones in both only."""
    left = _summed(node, left, needed | set(right.labels))
    right = _summed(node, right, needed | set(left.labels))
    both = [label for label in left.labels if label in right.labels]
    batch = "".join(label for label in both if label in needed)
    inner = "".join(label for label in both if label not in needed)
    rows, columns = ("".join(x for x in term.labels if x not in both) for term in (left, right))
    sizes = {**left.sizes, **right.sizes}
    count = lambda labels: prod(sizes[label] for label in labels)  # noqa: E731
    stack = tuple(sizes[label] for label in batch)
    a = _laid_out(node, left, batch + rows + inner, (*stack, count(rows), count(inner)))
    b = _laid_out(node, right, batch + inner + columns, (*stack, count(inner), count(columns)))
    dense, batched = (
        lambda x, y, function=function: node.emit(function(x, y))
        for function in (relay.nn.dense, relay.nn.batch_matmul)
    )
    expr, _ = matmul_expr(node, a, b, dense, batched)
    labels = batch + rows + columns
    shape = tuple(sizes[label] for label in labels)
    return Term(labels, Value(shape, a.dtype, node.emit(relay.reshape(_apart(node, expr), shape))))


def _laid_out(node: OnnxNode, term: Term, labels: str, shape: Shape) -> Value:
    turned = _turned(node, term, labels).value
    if turned.shape == shape:
        return turned
    if turned.data is not None:
        return turned.map_data(turned.data.reshape(shape))
    return Value(shape, turned.dtype, _apart(node, node.emit(relay.reshape(turned.expr, shape))))


def _apart(node: OnnxNode, expr: Any) -> Any:
    """A copy, so that a reshape is not taken for one that belongs to the product."""
    return node.emit(relay.copy(expr))


CONVERTERS: dict[str, Converter] = {"Einsum": einsum}
