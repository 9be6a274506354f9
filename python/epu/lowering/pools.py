"""MaxPool, AveragePool, QLinearAveragePool."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epu.constants import multipliers
from epu.graph import Graph, Node
from epu.lowering.linear import window
from epu.lowering.lowered import Lowered, dtype_of, operand, result, zero_of
from epu.lowering.observe import covered_result, observe_sum
from epu.lowering.split import Splits, by_windows
from epu.operators.pooling import position_constants, window_scales
from epu.operators.reduce_mean import mean_constants
from epu.operators.row import frac, quantized
from epu.operators.windows import full_pads, window_counts

if TYPE_CHECKING:
    from epu.tir_schedules.average_pool import AverageShape
    from epu.tir_schedules.movement import PoolShape

Array = NDArray[Any]


def pool_shape(node: Node, graph: Graph, pad_value: int) -> PoolShape:
    """One spatial dimension is a height of 1."""
    from epu.tir_schedules.movement import PoolShape

    x, size = operand(node, graph, 0), tuple(node.attrs["kernel_shape"])
    flat = len(x.shape) == 3
    padded = replace(node, attrs={**node.attrs, "pads": full_pads(node, x.shape[2:], size)})
    kernel, strides, dilations, pads = window(padded, size, flat)
    height, width = (1, x.shape[2]) if flat else (x.shape[2], x.shape[3])
    return PoolShape(x.shape[0] * x.shape[1], height, width, kernel, strides, pads, dilations, dtype_of(x), pad_value)


def lower_max_pool(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.movement import max_pool

    x = operand(node, graph, 0)
    shape = pool_shape(node, graph, int(np.iinfo(dtype_of(x)).min))
    splits = by_windows(shape, {"p": "planes"}, max_pool)
    return Lowered(node, max_pool(shape), {"X": x.name}, {"Y": node.outputs[0]}, splits=splits)


def lower_average_pool(node: Node, graph: Graph, rounding: str) -> Lowered:
    """Fixed point: shifts and factors of each window's count, scalars where all count alike."""
    from epu.tir_schedules.average_pool import AverageShape

    x, y = operand(node, graph, 0), result(node, graph)
    counts = window_counts(node, x.shape[2:], tuple(node.attrs["kernel_shape"]))
    bits = (frac(x), frac(y))
    shape = AverageShape(pool_shape(node, graph, 0), int(counts.flat[0]) if counts.min() == counts.max() else 0)
    if shape.count:
        k = mean_constants(shape.count, *bits)
        scalars = {"first": k.first, **({"factor": k.factor, "shift": k.shift} if k.factor else {})}
        return averaged(node, graph, shape, {}, scalars)
    arrays = dict(zip(("first", "factor", "shift"), position_constants(counts, *bits)))
    return averaged(node, graph, shape, arrays, {})


def lower_qlinear_average_pool(node: Node, graph: Graph, rounding: str) -> Lowered:
    """int8: padding holds the zero point, so that ``offset`` takes it out again."""
    from epu.tir_schedules.average_pool import AverageShape

    x, y = operand(node, graph, 0), result(node, graph)
    scales = window_scales(node, graph)
    factor, shift = (each.reshape(scales.shape) for each in multipliers(scales.ravel()))
    uniform = int(scales.min() == scales.max())
    seen = bool(covered_result(node))
    shape = AverageShape(pool_shape(node, graph, zero_of(x)), uniform, dtype_of(y), rounding, seen)
    scalars = {"offset": prod(node.attrs["kernel_shape"]) * zero_of(x), "zero_point": zero_of(y)}
    if uniform:
        scalars |= {"factor": int(factor.flat[0]), "shift": int(shift.flat[0])}
    lowered = averaged(node, graph, shape, {} if uniform else {"factor": factor, "shift": shift}, scalars)
    count = int(window_counts(node, x.shape[2:], tuple(node.attrs["kernel_shape"])).flat[0])
    observe_sum(lowered, graph, "total", quantized(x).scale[0] / count, zero=scalars["offset"])
    return lowered


def averaged(
    node: Node, graph: Graph, shape: AverageShape, arrays: dict[str, Array], scalars: dict[str, int]
) -> Lowered:
    from epu.tir_schedules.average_pool import average_pool

    plane = shape.window.out
    constants = {name: arrays[name].reshape(plane).astype(dtype) for name, dtype in shape.constants if arrays}
    x = operand(node, graph, 0)
    splits = average_splits(shape)
    kernel = average_pool(shape)
    return Lowered(node, kernel, {"X": x.name}, {"Y": node.outputs[0]}, constants, scalars, splits=splits)


def average_splits(whole: AverageShape) -> Splits:
    """Those of its windows."""
    from epu.tir_schedules.average_pool import average_pool

    return by_windows(whole.window, {"p": "planes"}, lambda window: average_pool(replace(whole, window=window)))
