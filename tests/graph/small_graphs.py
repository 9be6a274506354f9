"""Graphs by hand: lines of ``op inputs -> outputs``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from epu.graph import Float, Graph, Node, Quantized, Tensor, TensorType

INT8 = Quantized("int8", (0.05,), (0,))
SHAPE = (2, 3, 8)


def graph(lines: Sequence[str], inputs: dict[str, TensorType], outputs: Sequence[str], **tensors: Any) -> Graph:
    """``lines`` such as ``"Add x c -> y"``; node names are their outputs. ``tensors``: a type, a shape, or an array.

    Tensors without an entry are Float of SHAPE; names that start with q are INT8.
    """
    nodes = []
    for line in lines:
        left, right = line.split(" -> ")
        op, *names = left.split()
        nodes.append(Node(f"n_{right.split()[0]}", op, names, right.split(), dict(ATTRIBUTES.get(op, {}))))
    names = [*inputs, *(name for node in nodes for name in (*node.inputs, *node.outputs))]
    return Graph(
        "small", nodes, {n: tensor(n, tensors.get(n), inputs.get(n)) for n in names}, list(inputs), list(outputs)
    )


ATTRIBUTES: dict[str, dict[str, Any]] = {
    "ReduceMean": {"axes": (2,), "keepdims": 1},
    "Softmax": {"axis": -1},
    "Clip": {"min": 0.0, "max": 6.0},
    "HardSigmoid": {"alpha": 1 / 6, "beta": 0.5},
}


def tensor(name: str, given: Any, kind: TensorType | None) -> Tensor:
    default: TensorType = kind or (INT8 if name.startswith("q") else Float())
    if isinstance(given, np.ndarray):
        return Tensor(name, given.shape, default, given)
    if isinstance(given, tuple):
        return Tensor(name, given, default)
    return Tensor(name, SHAPE, given if given is not None else default)


def ops(of: Graph) -> list[str]:
    return [node.op for node in of.nodes]
