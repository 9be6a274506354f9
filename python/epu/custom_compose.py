"""A custom operator as a composition: the typed nodes that its ``compose`` adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from epu.custom_ops import OP_TYPE, CustomCall, CustomOp
from epu.fixed_formats import OP
from epu.graph import Float, Integer, Node, Quantized, Tensor, TensorType
from epu.operators import OPERATORS

Shape = tuple[int, ...]


class Composer:
    """Collects nodes and tensors in the place of one custom node.

    Tensors are known by name. ``tensor``: the tensor of that name in the operator's ONNX body, whose name and calibrated
    range in the model the new tensor then has. Raises UserError, with the node's name, for what does not fit.
    """

    def __init__(self, call: CustomCall, names: Mapping[str, str]) -> None:
        self.call, self.names = call, names
        self.nodes: list[Node] = []
        self.tensors = {tensor.name: tensor for tensor in call.inputs}
        self.used: Counter[str] = Counter()

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        type: TensorType = Float(),  # noqa: B008  # frozen
        tensor: str | None = None,
        **attrs: Any,
    ) -> str:
        """Add a node of docs/supported_ops.md and return its output's name."""
        if op not in OPERATORS or op == OP_TYPE:
            raise self.call.refuse(
                "compose must use operators of docs/supported_ops.md", op, "Use build.custom for yours"
            )
        return self._add(Node(self._name(op), op, list(inputs), [], attrs), shape, type, tensor)

    def custom(self, op: CustomOp, inputs: Sequence[str], tensor: str | None = None, **attrs: Any) -> str:
        """Add a call of another custom operator."""
        read = tuple(self._tensor(name) for name in inputs)
        known = {index: each.data for index, each in enumerate(read) if each.data is not None}
        name = self._name(op.name)
        found = op.output(CustomCall(name, op.name, read, None, known, attrs))
        kind: TensorType = Float() if found.dtype == "float32" else found.quantized or Integer(found.dtype)
        carried = {"custom": op, "attrs": attrs, "constants": known, "tensors": {}}
        return self._add(Node(name, OP_TYPE, list(inputs), [], carried), found.shape, kind, tensor)

    def constant(self, values: ArrayLike, type: TensorType | None = None) -> str:
        """Add a constant: float32, or raw integers of a quantised ``type``."""
        data = np.asarray(values, None if isinstance(type, Quantized) else np.float32)
        kind = type or Float()
        name = f"{self._name('Constant')}_output_0"
        self.tensors[name] = Tensor(name, tuple(data.shape), kind, data)
        return name

    # --- operators whose shape follows

    def reshape(self, x: str, shape: Sequence[int], tensor: str | None = None) -> str:
        if prod(shape) != prod(self.shape(x)):
            raise self.call.refuse(f"Reshape must keep the elements of {self.shape(x)}", tuple(shape), "Correct it")
        return self._same_type("Reshape", x, shape, tensor)

    def transpose(self, x: str, perm: Sequence[int], tensor: str | None = None) -> str:
        if sorted(perm) != list(range(len(self.shape(x)))):
            raise self.call.refuse(f"perm must order the axes of {self.shape(x)}", tuple(perm), "Correct it")
        shape = [self.shape(x)[axis] for axis in perm]
        return self._same_type("Transpose", x, shape, tensor, perm=tuple(perm))

    def gather(self, x: str, index: int | Sequence[int], axis: int, tensor: str | None = None) -> str:
        """The positions ``index`` of an axis; of a single one the axis goes."""
        axis %= len(self.shape(x))
        picked = np.asarray(index, np.int64)
        shape = (*self.shape(x)[:axis], *picked.shape, *self.shape(x)[axis + 1 :])
        return self._same_type("Gather", x, shape, tensor, axis=axis, indices=tuple(picked.ravel().tolist()))

    def concat(self, inputs: Sequence[str], axis: int, tensor: str | None = None) -> str:
        first = self.shape(inputs[0])
        axis %= len(first)
        shape = (*first[:axis], sum(self.shape(each)[axis] for each in inputs), *first[axis + 1 :])
        return self.node("Concat", inputs, shape, self._tensor(inputs[0]).type, tensor, axis=axis)

    def elementwise(self, op: str, *inputs: str, tensor: str | None = None, **attrs: Any) -> str:
        """Any operator on floats with one value per element of the broadcast shape: Add, Mul, Exp, …"""
        shapes = [self.shape(each) for each in inputs]
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError as error:
            raise self.call.refuse(f"inputs of {op} must broadcast", shapes, "Reshape one") from error
        return self.node(op, inputs, shape, Float(), tensor, **attrs)

    def matmul(self, a: str, b: str, quantized: Quantized | None = None, tensor: str | None = None) -> str:
        """MatMul of floats, or with ``quantized`` (the output's) QLinearMatMul of codes."""
        left, right = self.shape(a), self.shape(b)
        if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
            raise self.call.refuse("the operands of a product must fit", (left, right), "Transpose one")
        shape = (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
        return self.node("QLinearMatMul" if quantized else "MatMul", [a, b], shape, quantized or Float(), tensor)

    def softmax(self, x: str, tensor: str | None = None) -> str:
        """Along the last axis."""
        return self.node("Softmax", [x], self.shape(x), Float(), tensor, axis=len(self.shape(x)) - 1)

    def quantize(self, x: str, to: Quantized, tensor: str | None = None) -> str:
        return self.node("QuantizeLinear", [x], self.shape(x), to, tensor)

    def dequantize(self, x: str, tensor: str | None = None) -> str:
        return self.node("DequantizeLinear", [x], self.shape(x), Float(), tensor)

    def shape(self, name: str) -> Shape:
        return self._tensor(name).shape

    # --- names

    def _same_type(self, op: str, x: str, shape: Sequence[int], tensor: str | None, **attrs: Any) -> str:
        return self.node(op, [x], shape, self._tensor(x).type, tensor, **attrs)

    def _add(self, node: Node, shape: Sequence[int], kind: TensorType, tensor: str | None) -> str:
        for each in node.inputs:
            self._tensor(each)
        known = self.names.get(tensor or "")
        output = known or (f"{self.call.node}:{tensor}" if tensor else f"{node.name}_output_0")
        if output in self.tensors:
            raise self.call.refuse("tensors of a composition must differ in name", tensor, "Rename one")
        self.tensors[output] = Tensor(output, tuple(map(int, shape)), kind, range_source="" if known else OP)
        node.outputs.append(output)
        self.nodes.append(node)
        return output

    def _name(self, op: str) -> str:
        self.used[op] += 1
        within = "/" if ":" in self.call.node else ":"  # as all that lies within an ONNX node is named
        return f"{self.call.node}{within}{op}" + (f"_{self.used[op] - 1}" if self.used[op] > 1 else "")

    def _tensor(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise self.call.refuse("compose must read inputs or what it added", repr(name), "Give a tensor's name")
        return self.tensors[name]
