"""The typed graph: the one small IR between the doors (Relay today) and the kernels. No TVM type in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class Quantized:
    """Integer tensor that stands for ``(q - zero_point) * scale``.

    ``scale`` and ``zero_point`` have one entry (per tensor) or one per slice along ``axis`` (per channel).
    ``scale`` entries are float32 values.
    """

    dtype: str  # "int8", "uint8", "int32"
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True)
class Fixed:
    """FixedPoint32<frac>: int32 ``v`` that stands for ``v * 2**-frac``."""

    frac: int


@dataclass(frozen=True)
class Float:
    """float32 whose fraction bits are not assigned yet (never reaches a kernel)."""


@dataclass(frozen=True)
class Integer:
    """Plain integers: shapes, indices, masks."""

    dtype: str  # "int64", "int32", "bool", ...


TensorType = Quantized | Fixed | Float | Integer


@dataclass
class Tensor:
    """One value of the graph.

    ``name`` is the ONNX tensor name where the door knows it, else ``node:output index``.
    ``data`` holds a constant (int8/int32 raw values of a Quantized, float32 of a Float, raw int32 of a Fixed).
    ``range`` is the calibrated (low, high) of a float tensor, ``range_source`` says where it comes from
    (``"tranges"``, ``"scale"``, ``"constant"``, ``"op"``).
    """

    name: str
    shape: tuple[int, ...]
    type: TensorType
    data: NDArray[Any] | None = None
    range: tuple[float, float] | None = None
    range_source: str = ""


@dataclass
class Node:
    """One operation. ``name`` is the ONNX node name; ``covers`` lists the ONNX nodes of a recognised group,
    in order, each with the names of the tensors it produced (so that each stays observable). ``decodes``: tensor of a
    covered DequantizeLinear → the tensor whose codes it reads."""

    name: str
    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    covers: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)  # (node name, op, output tensors)
    decodes: dict[str, str] = field(default_factory=dict)


@dataclass
class Graph:
    """Nodes in topological order; ``tensors`` by name; an input of ``""`` is an absent optional input."""

    name: str
    nodes: list[Node]
    tensors: dict[str, Tensor]
    inputs: list[str]
    outputs: list[str]

    def tensor(self, name: str) -> Tensor:
        return self.tensors[name]

    def producer(self, name: str) -> Node | None:
        return next((node for node in self.nodes if name in node.outputs), None)

    def consumers(self, name: str) -> list[Node]:
        return [node for node in self.nodes if name in node.inputs]
