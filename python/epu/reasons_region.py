"""Evaluates ONNX nodes from given tensors: without rounding where they are linear in codes, else in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from epu import exact_windows as windows
from epu.exact_node import FAILURES, ModelNodes
from epu.reasons_contrib import Coded, coded
from epu.reasons_linear import as_terms
from epu.reasons_terms import Terms, dequantized, half_even_codes, reals_of

Array = NDArray[Any]
Leaf = Callable[[str], "Terms | Array | None"]


class Unknown(Exception):
    """A node that has neither an exact nor a float64 form."""


class Region:
    """Values of ONNX tensors behind ``leaf``, which gives codes, or reals as float64, where the evaluation begins.

    ``constants`` gives an initializer the format in which it is computed with. ``ops``: nodes that were evaluated in
    float64, or with weights that the kernel rounds, on the way.
    """

    def __init__(self, nodes: ModelNodes, leaf: Leaf, constants: Callable[[str, Array], Array] | None = None) -> None:
        self._nodes = nodes
        self._leaf = leaf
        self._constants = constants or (lambda name, array: array)
        self._known: dict[str, Terms | Array] = {}
        self.ops: list[onnx.NodeProto] = []

    def operand(self, name: str) -> Terms | Array:
        """A tensor that a node reads: a constant, a leaf, or evaluated. Raises Unknown."""
        constant = self._nodes.constant(name)
        if constant is not None:
            return self._constants(name, constant)
        if name not in self._known:
            given = self._leaf(name)
            self._known[name] = self.made(name) if given is None else given
        return self._known[name]

    def made(self, name: str) -> Terms | Array:
        """A tensor as its node makes it; codes are rounded half to even. Raises Unknown."""
        node = self._node(name)
        operands = [self.operand(each) if each else None for each in node.input]
        try:
            return self._evaluated(name, node, operands)
        except FAILURES as error:
            raise Unknown(f"{node.name}: {error}") from error

    def coded(self, name: str) -> Coded | None:
        """What the node of a quantised tensor rounds; None where the node does not round. Raises Unknown."""
        node = self._node(name)
        operands = [self.operand(each) if each else None for each in node.input]
        try:
            return coded(node, operands, self._nodes.opset)
        except FAILURES as error:
            raise Unknown(f"{node.name}: {error}") from error

    def _node(self, name: str) -> onnx.NodeProto:
        if name not in self._nodes.by_output:
            raise Unknown(f"no node makes '{name}'")
        return self._nodes.by_output[name]

    def _evaluated(self, name: str, node: onnx.NodeProto, operands: list[Any]) -> Terms | Array:
        if node.op_type == "DequantizeLinear":
            return _dequantized(node, operands)
        found = coded(node, operands, self._nodes.opset)
        if found is not None:
            return half_even_codes(reals_of(found.value), found.scale, found.zero, found.axis, _dtype(operands, node))
        terms = as_terms(node, operands, self._nodes)
        if terms is not None:
            self.ops += [node] if node.op_type == "Resize" else []
            return terms
        feeds = {each: reals_of(value) for each, value in zip(node.input, operands) if value is not None}
        value = self._nodes.in_float64(name, feeds)
        if value is None:
            raise Unknown(f"{node.name} ({node.op_type}) has no float64 form")
        self.ops.append(node)
        return value


def _dequantized(node: onnx.NodeProto, operands: list[Any]) -> Terms:
    codes, scale, *zero = operands
    points = np.zeros(1) if not zero or zero[0] is None else np.atleast_1d(zero[0])
    return dequantized(
        codes, np.atleast_1d(scale), points, windows.attributes(node).get("axis", 1) % max(codes.ndim, 1)
    )


def _dtype(operands: list[Any], node: onnx.NodeProto) -> np.dtype[Any]:
    """Of the codes: that of the output's zero point, uint8 without one."""
    places = {"QuantizeLinear": 2, "QLinearConcat": 1, "QGemm": 8}
    at = places.get(node.op_type, 7 if len(operands) > 6 else 4)
    zero = operands[at] if at < len(operands) else None
    return np.dtype(np.uint8) if zero is None else np.asarray(zero).dtype
