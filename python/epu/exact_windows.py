"""Windows of a pool in float64, by one view over the padded tensor; ONNX's reference takes a Python loop per window."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

Reals = NDArray[np.float64]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}


def plain_windows(node: onnx.NodeProto) -> bool:
    """Whether padding is explicit and windows end where the tensor ends, as those of stride 1 do."""
    given = attributes(node)
    ceil = given.get("ceil_mode", 0) and any(step != 1 for step in given.get("strides") or ())
    return not ceil and given.get("auto_pad", b"NOTSET") in (b"NOTSET", b"")


def pooled(node: onnx.NodeProto, x: Reals, fill: float) -> Reals:
    """Windows of ``x`` [n, c, spatial...] as [n, c, out..., kernel...], padding holds ``fill``."""
    given = attributes(node)
    kernel = tuple(given["kernel_shape"])
    rank = len(kernel)
    strides, dilations = (tuple(given.get(name) or (1,) * rank) for name in ("strides", "dilations"))
    pads = tuple(given.get("pads") or (0,) * (2 * rank))
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:])], constant_values=fill)
    reach = tuple((size - 1) * step + 1 for size, step in zip(kernel, dilations))
    axes = [2 + axis for axis in range(rank)]
    seen = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=axes)  # type: ignore[call-overload]
    steps = (slice(None), slice(None), *(slice(None, None, step) for step in (*strides, *dilations)))
    found: Reals = seen[steps]
    return found


def sums(node: onnx.NodeProto, x: Reals) -> Reals:
    """Sum of each window, padding is 0."""
    seen = pooled(node, x, 0.0)
    return np.asarray(seen.sum(axis=_inner(seen)), np.float64)


def counts(node: onnx.NodeProto, shape: tuple[int, ...]) -> Reals:
    """How many values each window's mean counts [1, 1, out...]."""
    ones = np.ones((1, 1, *shape[2:]))
    seen = pooled(node, ones, 1.0 if attributes(node).get("count_include_pad", 0) else 0.0)
    return np.asarray(seen.sum(axis=_inner(seen)), np.float64)


def maxima(node: onnx.NodeProto, x: Reals) -> Reals:
    """Maximum of each window, padding never wins."""
    seen = pooled(node, x, -np.inf)
    return np.asarray(seen.max(axis=_inner(seen)), np.float64)


def _inner(seen: Reals) -> tuple[int, ...]:
    return tuple(range(seen.ndim // 2 + 1, seen.ndim))
