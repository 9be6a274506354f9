"""ArgMax and ArgMin, of codes and of fixed point: int64 places for whoever reads the model's output."""

from __future__ import annotations

import numpy as np

from epu.graph import Graph, Node
from epu.operators.reduce_mean import reduced_axes
from epu.operators.reductions import COUNT, ORDERED
from epu.operators.row import Array, Limit, Operator, Values, output_tensor


def arg_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    raw = np.asarray(values[node.inputs[0]], np.int64)
    (axis,) = reduced_axes(node, graph)
    ordered = raw if node.op == "ArgMax" else -raw
    if node.attrs.get("select_last_index", 0):
        found = ordered.shape[axis] - 1 - np.argmax(np.flip(ordered, axis), axis)
    else:
        found = np.argmax(ordered, axis)
    return [np.asarray(found, np.int64).reshape(output_tensor(node, graph).shape)]


def check_readers(node: Node, graph: Graph) -> str | None:
    """No kernel reads places."""
    readers = [reader.name for reader in graph.consumers(node.outputs[0])]
    return f"'{readers[0]}'" if readers else None


LIMITS = (ORDERED, COUNT, Limit("the places are outputs of the model, no node reads them", check_readers))
ROWS = tuple(Operator(name, "fold", LIMITS, arg_reference) for name in ("ArgMax", "ArgMin"))
