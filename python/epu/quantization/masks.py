"""Finds the nodes that must stay float because their tensors hold masks: int8 keeps nothing beside such values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from epu.log import get_logger
from epu.ranges import Range

log = get_logger("quantize")

SENTINEL = 1e9  # no activation is that large; -3.4e38 and -1e9 are usual masks
ATTENTION_MASK = 1e3  # added in front of Softmax: -10000 is usual, and scores are far smaller


def mask_nodes(model: onnx.ModelProto, ranges: Mapping[str, Range], excluded: Sequence[str] = ()) -> list[str]:
    """Return the names of nodes that read or write values beyond 1e9, or add values below -1e3 for a Softmax.

    ``ranges`` are those of the float model; nodes ``excluded`` already are left out. Each node found is logged.
    """
    into_softmax = {node.input[0] for node in model.graph.node if node.op_type == "Softmax"}
    found = []
    for node in model.graph.node:
        if node.name in excluded:
            continue
        known = [(name, *ranges[name]) for name in (*node.input, *node.output) if name in ranges]
        masking = node.op_type == "Add" and node.output[0] in into_softmax
        limit = ATTENTION_MASK if masking else SENTINEL
        beyond = [name for name, low, high in known if low < -limit or high > SENTINEL]
        if beyond:
            log.info("Node '%s' stays float: tensor '%s' holds a mask", node.name, beyond[0])
            found.append(node.name)
    return found
