"""Products with zero points that no constant can take up: sums of codes from nodes of their own (docs/arithmetic.md)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.constants import integer_range
from epu.graph import Graph, Integer, Node, Quantized, Tensor, TensorType
from epu.operators.row import quantized, required, zero_point
from epu.reference import run_node

CONVOLUTIONS = ("QLinearConv", "ConvInteger")
FIRST_SUM = {"QLinearMatMul": 2, "MatMulInteger": 2, "QGemm": 3, "QLinearConv": 3, "ConvInteger": 3}
ONE = Quantized("int8", (1.0,), (0,))


def expand_zero_points(graph: Graph) -> Graph:
    """Constant operands are centred where their codes then fit a byte. A product whose right operand still has a zero point
    reads the sums of its left operand's rows or windows at input FIRST_SUM; one whose left operand has one that no bias
    takes up reads the sums of the right operand's columns at the next. An absent sum is ""."""
    made = _Made(dict(graph.tensors))
    for node in graph.nodes:
        made.nodes.append(_with_sums(node, made) if node.op in FIRST_SUM else node)
    return replace(graph, nodes=made.nodes, tensors=made.tensors)


@dataclass
class _Made:
    """Nodes and tensors of the new graph."""

    tensors: dict[str, Tensor]
    nodes: list[Node] = field(default_factory=list)

    @property
    def graph(self) -> Graph:
        return Graph("", self.nodes, self.tensors, [], [])

    def tensor(self, name: str, shape: tuple[int, ...], kind: TensorType, data: NDArray[Any] | None = None) -> str:
        self.tensors[name] = Tensor(name, shape, kind, data)
        return name

    def ones(self, name: str, shape: tuple[int, ...]) -> str:
        return self.tensor(f"{name}:ones", shape, ONE, np.ones(shape, np.int8))

    def sums(self, name: str, op: str, inputs: list[str], shape: tuple[int, ...], attrs: dict[str, Any]) -> str:
        """The tensor of a product with ones: a constant's is computed now."""
        total, node = Tensor(name, shape, Integer("int32")), Node(name, op, inputs, [name], attrs)
        self.tensors[name] = total
        constants = {each: data for each in inputs if (data := self.tensors[each].data) is not None}
        if len(constants) == len(inputs):
            total.data = run_node(node, self.graph, constants)[name]
        else:
            self.nodes.append(_with_sums(node, self))
        return name


def _with_sums(node: Node, made: _Made) -> Node:
    left, right = (_centred(node, index, made) for index in (0, 1))
    node = replace(node, inputs=[left.name, right.name, *node.inputs[2:]])
    in_bias = node.op in CONVOLUTIONS or (right.data is not None and right.data.ndim == 2)
    sums = ["", ""]
    if any(quantized(right).zero_point):
        sums[0] = (_windows if node.op in CONVOLUTIONS else _rows)(node, left, right, made)
    if any(quantized(left).zero_point) and not in_bias:
        sums[1] = _columns(node, right, made)
    if not any(sums):
        return node
    return replace(node, inputs=[*[*node.inputs, ""][: FIRST_SUM[node.op]], *sums])


def _centred(node: Node, index: int, made: _Made) -> Tensor:
    """A constant operand with zero point 0 where its codes fit a byte so; else the operand as it is."""
    operand = required(node, made.graph, index)
    kind = quantized(operand)
    if operand.data is None or not any(kind.zero_point):
        return operand
    values = operand.data.astype(np.int64) - zero_point(kind, operand.data.ndim)
    for dtype in ("int8", "uint8"):
        low, high = integer_range(dtype)
        if low <= values.min() and values.max() <= high:
            centred = replace(kind, dtype=dtype, zero_point=(0,) * len(kind.zero_point))
            name = f"{node.name}:{'ab'[index]}"
            return made.tensors[made.tensor(name, operand.shape, centred, values.astype(dtype))]
    return operand


def _rows(node: Node, left: Tensor, right: Tensor, made: _Made) -> str:
    name = f"{node.name}:row_sums"
    inputs = [left.name, made.ones(name, (left.shape[-1], 1))]
    return made.sums(name, "MatMulInteger", inputs, (*left.shape[:-1], 1), {})


def _columns(node: Node, right: Tensor, made: _Made) -> str:
    """Of b [..., k, n], or of a Gemm's b [n, k]."""
    name = f"{node.name}:column_sums"
    if node.attrs.get("transB", 0):
        inputs = [right.name, made.ones(name, (right.shape[1], 1))]
        return made.sums(name, "MatMulInteger", inputs, (right.shape[0], 1), {})
    stack, (depth, columns) = right.shape[:-2], right.shape[-2:]
    inputs = [made.ones(name, (*stack, 1, depth)), right.name]
    return made.sums(name, "MatMulInteger", inputs, (*stack, 1, columns), {})


def _windows(node: Node, left: Tensor, right: Tensor, made: _Made) -> str:
    """By one filter of ones per group; padding is the input's zero point here too."""
    name, groups = f"{node.name}:window_sums", int(node.attrs.get("group", 1))
    batch, _, *out = made.tensors[node.outputs[0]].shape
    inputs = [left.name, made.ones(name, (groups, *right.shape[1:]))]
    return made.sums(name, "ConvInteger", inputs, (batch, groups, *out), dict(node.attrs))
