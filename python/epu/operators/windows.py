"""Sliding windows over the spatial dimensions, shared by convolution and pooling."""

from __future__ import annotations

from typing import Any

import numpy as np

from epu.graph import Graph, Node
from epu.operators.row import Ints, Limit, ints_attribute


def windows(x: Ints, node: Node, kernel: tuple[int, ...], fill: int) -> Ints:
    """A view [batch, channels, out..., kernel...]; attributes strides, pads, dilations; padding holds ``fill``."""
    spatial = len(kernel)
    strides = ints_attribute(node, "strides", (1,) * spatial)
    dilations = ints_attribute(node, "dilations", (1,) * spatial)
    pads = ints_attribute(node, "pads", (0,) * 2 * spatial)
    edges = [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:])]
    padded = np.pad(x, edges, constant_values=fill)
    extent = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations))
    axes: Any = tuple(range(2, 2 + spatial))  # NumPy's annotation knows one axis only
    seen = np.lib.stride_tricks.sliding_window_view(padded, extent, axes)
    every = tuple(slice(None, None, step) for step in (1, 1, *strides, *dilations))
    found: Ints = seen[every]
    return found


def check_auto_pad(node: Node, graph: Graph) -> str | None:
    found = node.attrs.get("auto_pad", "NOTSET")
    return None if found in ("NOTSET", "", b"NOTSET") else str(found)


def check_ceil_mode(node: Node, graph: Graph) -> str | None:
    return "ceil_mode 1" if node.attrs.get("ceil_mode", 0) else None


NO_AUTO_PAD = Limit("padding is explicit (auto_pad NOTSET)", check_auto_pad)
FLOOR_MODE = Limit("output sizes are rounded down (ceil_mode 0)", check_ceil_mode)
