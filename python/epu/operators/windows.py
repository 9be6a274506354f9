"""Sliding windows over the spatial dimensions, shared by convolution and pooling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from epu.graph import Graph, Node
from epu.operators.row import Ints, Limit, ints_attribute


def windows(x: Ints, node: Node, kernel: tuple[int, ...], fill: int) -> Ints:
    """A view [batch, channels, out..., kernel...]; attributes strides, pads, dilations, ceil_mode; padding holds ``fill``."""
    spatial = len(kernel)
    strides = ints_attribute(node, "strides", (1,) * spatial)
    dilations = ints_attribute(node, "dilations", (1,) * spatial)
    pads = full_pads(node, x.shape[2:], kernel)
    edges = [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:])]
    padded = np.pad(x, edges, constant_values=fill)
    extent = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations))
    axes: Any = tuple(range(2, 2 + spatial))  # NumPy's annotation knows one axis only
    seen = np.lib.stride_tricks.sliding_window_view(padded, extent, axes)
    every = tuple(slice(None, None, step) for step in (1, 1, *strides, *dilations))
    found: Ints = seen[every]
    return found


def full_pads(node: Node, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
    """The pads with what the last windows of ceil_mode reach beyond them; all begins, then all ends."""
    spatial = len(kernel)
    strides = ints_attribute(node, "strides", (1,) * spatial)
    dilations = ints_attribute(node, "dilations", (1,) * spatial)
    pads = ints_attribute(node, "pads", (0,) * 2 * spatial)
    ends = list(pads[spatial:])
    for k in range(spatial) if node.attrs.get("ceil_mode", 0) else ():
        reach = dilations[k] * (kernel[k] - 1) + 1
        last = -(-(sizes[k] + pads[k] + ends[k] - reach) // strides[k])
        last -= last * strides[k] >= sizes[k] + pads[k]  # no window lies in the end padding alone
        ends[k] = max(ends[k], last * strides[k] + reach - sizes[k] - pads[k])
    return (*pads[:spatial], *ends)


def window_counts(node: Node, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> Ints:
    """How many positions of each window an average counts [out...]: the input's, with count_include_pad the padding's."""
    spatial, counted = len(kernel), np.ones((1, 1, *sizes), np.int64)
    pads = ints_attribute(node, "pads", (0,) * 2 * spatial)
    full = full_pads(node, sizes, kernel)
    if node.attrs.get("count_include_pad", 0):
        counted = np.pad(counted, [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:])], constant_values=1)
        begins, ends = (0,) * spatial, tuple(b - a for a, b in zip(pads[spatial:], full[spatial:]))
    else:
        begins, ends = full[:spatial], full[spatial:]
    plain = replace(node, attrs={**node.attrs, "pads": (*begins, *ends), "ceil_mode": 0})
    found: Ints = windows(counted, plain, kernel, fill=0).sum(axis=tuple(range(-spatial, 0)))[0, 0]
    return found


def check_auto_pad(node: Node, graph: Graph) -> str | None:
    found = node.attrs.get("auto_pad", "NOTSET")
    return None if found in ("NOTSET", "", b"NOTSET") else str(found)


NO_AUTO_PAD = Limit("padding is explicit (auto_pad NOTSET)", check_auto_pad)
