"""Cases of the operators that move elements, resize and slide windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from node_cases import Draw, Found, byte, case, extent, flag, output_kind, shape_of, size, variable, window, zero_point
from one_node import Case

from epu.graph import Float, Integer, Quantized


def operand(draw: Draw, c: Case, shape: tuple[int, ...]) -> Quantized | Float:
    """Bytes or fixed point."""
    return variable(draw, c, "x", shape) if draw(flag) else c.real("x", shape, draw(size))


def concat(draw: Draw, op: str) -> Found:
    """One to four inputs, some constant, of the same or other formats."""
    c, shape = case(draw), shape_of(draw)
    axis = draw(st.integers(0, len(shape) - 1))
    sizes = draw(st.lists(st.sampled_from((0, 1, 2, 3, 5, 8)), min_size=1, max_size=4).filter(any))
    for name, count in zip("abcd", sizes):
        piece = (*shape[:axis], count, *shape[axis + 1 :])
        fixed = any(raw.size for raw in c.inputs.values()) and draw(st.integers(0, 3)) == 0
        if op == "Concat":
            c.real(name, piece, draw(size), constant=fixed)
        else:
            dtype = draw(byte)
            c.quantized(name, piece, dtype, zero_point(draw, dtype), constant=fixed)
    out = (*shape[:axis], sum(sizes), *shape[axis + 1 :])
    if op == "Concat":
        c.result(out, size=draw(size))
    else:
        c.result(out, output_kind(draw, draw(st.sampled_from((0.005, 0.1)))))
    graph, inputs = c.graph(op, axis=axis), {name: raw for name, raw in c.inputs.items() if raw.size}
    graph.inputs = list(inputs)
    return graph, inputs


def cut(draw: Draw) -> Found:
    """Slice with steps of either sign."""
    c, shape = case(draw), shape_of(draw)
    starts, ends, steps, out = [], [], [], []
    for count in shape:
        step = draw(st.sampled_from((1, 1, 2, 3, -1, -2)))
        start, end = draw(st.integers(0, count - 1)), draw(st.integers(0, count))
        start, end = (start, max(end, start + 1)) if step > 0 else (start, min(end, start) - 1)
        found = range(start, end, step)
        starts.append(start)
        ends.append(end if end >= 0 else -count - 1)
        steps.append(step)
        out.append(len(found))
    kind = operand(draw, c, shape)
    c.result(out, kind)
    return c.graph("Slice", starts=starts, ends=ends, axes=tuple(range(len(shape))), steps=steps), c.inputs


def gather(draw: Draw) -> Found:
    """A position, some in order, or any."""
    c, shape = case(draw), shape_of(draw)
    axis = draw(st.integers(0, len(shape) - 1))
    picked = draw(st.lists(st.integers(-shape[axis], shape[axis] - 1), min_size=1, max_size=6))
    scalar = len(picked) == 1 and draw(flag)
    kind = operand(draw, c, shape)
    c.result((*shape[:axis], *(() if scalar else (len(picked),)), *shape[axis + 1 :]), kind)
    return c.graph("Gather", axis=axis, indices=tuple(picked)), c.inputs


def expand(draw: Draw) -> Found:
    c, out = case(draw), shape_of(draw)
    shape = tuple(1 if draw(flag) else n for n in out)[draw(st.integers(0, len(out))) :]
    kind = operand(draw, c, shape)
    c.result(out, kind)
    return c.graph("Expand"), c.inputs


def tile(draw: Draw) -> Found:
    c, shape = case(draw), shape_of(draw)
    repeats = tuple(draw(st.sampled_from((1, 1, 2, 3))) for _ in shape)
    kind = operand(draw, c, shape)
    c.result([n * r for n, r in zip(shape, repeats)], kind)
    return c.graph("Tile", repeats=repeats), c.inputs


def pad(draw: Draw) -> Found:
    """Each mode, with negative padding of constants."""
    c, shape = case(draw), shape_of(draw)
    mode = draw(st.sampled_from(("constant", "edge", "reflect")))
    if mode == "reflect":
        edges = [(draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1))) for n in shape]
    else:
        lowest = -1 if mode == "constant" else 0
        edges = [
            (draw(st.integers(lowest if n > 2 else 0, 3)), draw(st.integers(lowest if n > 2 else 0, 3))) for n in shape
        ]
    kind = operand(draw, c, shape)
    value = draw(st.sampled_from((0.0, 2.5, -1e30))) if isinstance(kind, Float) else kind.zero_point[0]
    c.result([n + low + high for n, (low, high) in zip(shape, edges)], kind)
    pads = (*(low for low, _ in edges), *(high for _, high in edges))
    return c.graph("Pad", mode=mode, pads=pads, value=value), c.inputs


def depth_to_space(draw: Draw) -> Found:
    c, block = case(draw), draw(st.sampled_from((1, 2, 3)))
    batch, channels, height, width = (draw(st.sampled_from((1, 2, 3, 5))) for _ in range(4))
    kind = operand(draw, c, (batch, channels * block**2, height, width))
    c.result((batch, channels, height * block, width * block), kind)
    return c.graph("DepthToSpace", blocksize=block, mode=draw(st.sampled_from(("DCR", "CRD")))), c.inputs


def space_to_depth(draw: Draw) -> Found:
    c, block = case(draw), draw(st.sampled_from((1, 2, 3)))
    batch, channels, height, width = (draw(st.sampled_from((1, 2, 3, 5))) for _ in range(4))
    kind = operand(draw, c, (batch, channels, height * block, width * block))
    c.result((batch, channels * block**2, height, width), kind)
    return c.graph("SpaceToDepth", blocksize=block), c.inputs


def resize_nearest(draw: Draw) -> Found:
    c, plane, out = case(draw), (draw(extent), draw(extent)), (draw(extent), draw(extent))
    if draw(flag):
        out = tuple(n * draw(st.sampled_from((1, 2, 4))) for n in plane)
    lead = (draw(st.sampled_from((1, 2))), draw(extent))
    kind = operand(draw, c, (*lead, *plane))
    c.result((*lead, *out), kind)
    attrs = {
        "mode": "nearest",
        "coordinate_transformation_mode": draw(st.sampled_from(("asymmetric", "half_pixel", "align_corners"))),
        "nearest_mode": draw(st.sampled_from(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))),
    }
    return c.graph("Resize", **attrs), c.inputs


def resize_linear(draw: Draw) -> Found:
    """Along one or two axes."""
    c, plane, out = case(draw), (draw(extent), draw(extent)), (draw(extent), draw(extent))
    kind = operand(draw, c, (1, 3, *plane))
    c.result((1, 3, *out), kind)
    where = draw(st.sampled_from(("asymmetric", "half_pixel", "align_corners")))
    return c.graph("Resize", mode="linear", coordinate_transformation_mode=where), c.inputs


def blend(draw: Draw) -> Found:
    c, shape = case(draw), shape_of(draw)
    kind = variable(draw, c, "a", shape) if draw(flag) else c.real("a", shape, draw(size))
    c.add("b", shape, kind, c.raw(shape, kind.dtype if isinstance(kind, Quantized) else "int32", "random"), False)
    c.tensors["b"].range, c.tensors["b"].range_source = c.tensors["a"].range, c.tensors["a"].range_source
    for name in "vw":
        c.add(name, shape, Integer("int32"), c.rng.integers(0, 1 << 28, shape, np.int32), True)
    c.result(shape, kind)
    c.tensors["y"].range, c.tensors["y"].range_source = c.tensors["a"].range, c.tensors["a"].range_source
    return c.graph("Blend", shift=29), c.inputs


def rescale(draw: Draw) -> Found:
    c, shape = case(draw), shape_of(draw)
    c.real("x", shape, draw(size))
    c.result(shape, size=draw(size))
    return c.graph("Rescale"), c.inputs


def reduction(draw: Draw, op: str) -> Found:
    """Over any axes."""
    c, shape = case(draw), shape_of(draw)
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    keep = draw(flag)
    out = [1 if axis in axes else n for axis, n in enumerate(shape) if keep or axis not in axes]
    if op == "ReduceSum":
        c.real("x", shape, draw(size))
        c.result(out, size=draw(size))
    else:
        c.result(out, operand(draw, c, shape))
    return c.graph(op, axes=axes, keepdims=int(keep)), c.inputs


def places(draw: Draw, op: str) -> Found:
    """Along any axis, with equal values."""
    c, shape = case(draw), shape_of(draw)
    axis, keep = draw(st.integers(0, len(shape) - 1)), draw(flag)
    operand(draw, c, shape)
    if draw(flag):
        c.inputs["x"] = c.inputs["x"] & 3
    out = [1 if k == axis else n for k, n in enumerate(shape) if keep or k != axis]
    c.result(out, Integer("int64"))
    return c.graph(op, axes=(axis,), keepdims=int(keep), select_last_index=int(draw(flag))), c.inputs


def pool(draw: Draw, op: str) -> Found:
    """Floor and ceil, with every kind of padding."""
    c, (kernel, seen) = case(draw), window(draw, lambda k: k // 2)
    rank, ceil = len(kernel), draw(flag)
    out = []
    for k in range(rank):
        reach, before, stride = (
            seen.attrs["dilations"][k] * (kernel[k] - 1) + 1,
            seen.attrs["pads"][k],
            seen.attrs["strides"][k],
        )
        room = seen.plane[k] + before + seen.attrs["pads"][k + rank] - reach
        count = -(-room // stride) + 1 if ceil else room // stride + 1
        out.append(count - int(ceil and (count - 1) * stride >= seen.plane[k] + before))
    shape = (draw(st.sampled_from((1, 2))), draw(extent))
    if op == "QLinearAveragePool":
        x = variable(draw, c, "x", (*shape, *seen.plane))
        c.result((*shape, *out), output_kind(draw, x.scale[0] * draw(st.sampled_from((0.3, 0.9)))))
    else:
        kind = (
            operand(draw, c, (*shape, *seen.plane))
            if op == "MaxPool"
            else c.real("x", (*shape, *seen.plane), draw(size))
        )
        c.result((*shape, *out), kind)
    more = {} if op == "MaxPool" else {"count_include_pad": int(draw(flag))}
    return c.graph(op, kernel_shape=kernel, ceil_mode=int(ceil), **seen.attrs, **more), c.inputs


def table(draw: Draw, op: str) -> Found:
    c, shape = case(draw), shape_of(draw)
    x = variable(draw, c, "x", shape)
    c.result(shape, output_kind(draw, 1 / 250 if op == "QLinearSigmoid" else x.scale[0]))
    return c.graph(
        op, **({} if op == "QLinearSigmoid" else {"alpha": draw(st.sampled_from((0.01, 0.3, 2.0)))})
    ), c.inputs


def zero_stuff(draw: Draw) -> Found:
    c, rank = case(draw), draw(st.sampled_from((1, 2)))
    shape = tuple(draw(st.sampled_from((1, 2, 3, 5))) for _ in range(2 + rank))
    strides = tuple(draw(st.sampled_from((1, 2, 3))) for _ in range(rank))
    kind = operand(draw, c, shape)
    c.result((*shape[:2], *((n - 1) * s + 1 for n, s in zip(shape[2:], strides))), kind)
    zero = kind.zero_point[0] if isinstance(kind, Quantized) else 0
    return c.graph("ZeroStuff", strides=strides, value=zero), c.inputs


@dataclass(frozen=True)
class Spread:
    """The window of a transposed convolution over one or two dimensions."""

    kernel: tuple[int, ...]
    plane: tuple[int, ...]
    out: tuple[int, ...]
    attrs: dict[str, Any]

    @property
    def groups(self) -> int:
        return int(self.attrs["group"])


def spread(draw: Draw) -> Spread:
    """Any form, and the simple one of a kernel as large as the stride."""
    kernel = strides = tuple(draw(st.sampled_from((1, 2, 3))) for _ in range(2))
    dilations, pads, extra, groups = (1, 1), (0,) * 4, (0, 0), 1
    if draw(flag):
        rank = draw(st.sampled_from((1, 2)))
        kernel, strides, dilations = (tuple(draw(st.integers(1, m)) for _ in range(rank)) for m in (3, 3, 2))
        reach = [d * (k - 1) for k, d in zip(kernel, dilations)]
        pads = tuple(draw(st.integers(0, most)) for most in (*reach, *reach))
        extra = tuple(draw(st.integers(0, s - 1)) for s in strides)
        groups = draw(st.sampled_from((1, 2)))
    plane = tuple(draw(st.sampled_from((3, 4, 5))) for _ in kernel)
    out = tuple(
        (n - 1) * s + d * (k - 1) + 1 - before - after + more
        for n, s, d, k, before, after, more in zip(plane, strides, dilations, kernel, pads, pads[len(kernel) :], extra)
    )
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "output_padding": extra, "group": groups}
    return Spread(kernel, plane, out, attrs)


def int8_conv_transpose(draw: Draw) -> Found:
    c, seen = case(draw), spread(draw)
    channels, filters, batch = (draw(st.sampled_from(each)) for each in ((1, 3, 8), (1, 2, 5), (1, 2)))
    channels *= seen.groups
    x = variable(draw, c, "x", (batch, channels, *seen.plane))
    w = c.quantized("w", (channels, filters, *seen.kernel), constant=True, axis=1 if draw(flag) else None)
    if draw(flag):
        c.bias(filters * seen.groups)
    c.result((batch, filters * seen.groups, *seen.out), output_kind(draw, x.scale[0] * w.scale[0] * 150))
    return c.graph("QLinearConvTranspose", **seen.attrs), c.inputs


def fixed_conv_transpose(draw: Draw) -> Found:
    c, seen, limit = case(draw), spread(draw), draw(size)
    channels, filters, batch = (draw(st.sampled_from(each)) for each in ((1, 3, 8), (1, 2, 5), (1, 2)))
    channels *= seen.groups
    c.real("x", (batch, channels, *seen.plane), limit)
    c.real("w", (channels, filters, *seen.kernel), 2.0, constant=True)
    if draw(flag):
        c.real("b", (filters * seen.groups,), 1.0, constant=True)
    c.result((batch, filters * seen.groups, *seen.out), size=limit * 2 * channels + 1)
    return c.graph("ConvTranspose", **seen.attrs), c.inputs


LAYOUT: dict[str, tuple[Callable[[Any], Found], ...]] = {
    "Concat": (lambda draw: concat(draw, "Concat"),),
    "QLinearConcat": (lambda draw: concat(draw, "QLinearConcat"),),
    "Slice": (cut,),
    "Gather": (gather,),
    "Expand": (expand,),
    "Tile": (tile,),
    "Pad": (pad,),
    "DepthToSpace": (depth_to_space,),
    "SpaceToDepth": (space_to_depth,),
    "QLinearSigmoid": (lambda draw: table(draw, "QLinearSigmoid"),),
    "QLinearLeakyRelu": (lambda draw: table(draw, "QLinearLeakyRelu"),),
    "ZeroStuff": (zero_stuff,),
    "QLinearConvTranspose": (int8_conv_transpose,),
    "ConvTranspose": (fixed_conv_transpose,),
    "Blend": (blend,),
    "Resize": (resize_nearest, resize_linear),
    "Rescale": (rescale,),
    "ReduceSum": (lambda draw: reduction(draw, "ReduceSum"),),
    "ReduceMax": (lambda draw: reduction(draw, "ReduceMax"),),
    "ReduceMin": (lambda draw: reduction(draw, "ReduceMin"),),
    "ArgMax": (lambda draw: places(draw, "ArgMax"),),
    "ArgMin": (lambda draw: places(draw, "ArgMin"),),
    "MaxPool": (lambda draw: pool(draw, "MaxPool"),),
    "AveragePool": (lambda draw: pool(draw, "AveragePool"),),
    "QLinearAveragePool": (lambda draw: pool(draw, "QLinearAveragePool"),),
}
