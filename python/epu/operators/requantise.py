"""Requantisation, shared by every operator that accumulates int8 products."""

from __future__ import annotations

import numpy as np

from epu.constants import multipliers
from epu.graph import Graph, Node
from epu.lanes import round24, rshr, saturate
from epu.operators.row import ORT, Array, Ints, along, output_tensor, quantized


def requantise(node: Node, graph: Graph, acc: Ints, scale: Array, axis: int, rounding: str) -> Array:
    """``acc * scale`` to the type of output 0; ``scale``: float32, one or one per slice along ``axis``."""
    kind = quantized(output_tensor(node, graph))
    factor, shift = (along(each, axis, acc.ndim) for each in multipliers(np.atleast_1d(scale)))
    if rounding == ORT:
        product = round24(round24(acc) * factor)
    else:
        product = acc * factor
    return saturate(rshr(product, shift) + kind.zero_point[0], kind.dtype)
