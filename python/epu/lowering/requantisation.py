"""Constants of a requantisation, and the int32 constant that a product adds to its sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.constants import multiplier, multipliers
from epu.errors import UnsupportedNode
from epu.graph import Node

Array = NDArray[Any]


def requantisation(scales: Array, zero_point: int) -> tuple[dict[str, Array], dict[str, int]]:
    """Factor and shift as scalars for one scale, as int32 vectors for several; the zero point."""
    if scales.size == 1:
        factor, shift = multiplier(float(scales[0]))
        return {}, {"factor": factor, "shift": shift, "zero_point": zero_point}
    factors, shifts = multipliers(scales)
    return {"factor": factors.astype(np.int32), "shift": shifts.astype(np.int32)}, {"zero_point": zero_point}


def folded_bias(node: Node, term: Array, bias: Array | None) -> Array | None:
    """``bias + term`` as int32, one per column or filter; None where there is no bias and all terms are 0."""
    if bias is None and not term.any():
        return None
    total = term if bias is None else term + np.ravel(bias).astype(np.int64)
    outside = total[(total < -(2**31)) | (total >= 2**31)]
    if outside.size:
        raise UnsupportedNode(
            f"ONNX node '{node.name}' ({node.op}): bias with the input's zero point must fit int32, found {outside[0]}. "
            "Quantise the weights of that channel with a larger scale."
        )
    return total.astype(np.int32)
