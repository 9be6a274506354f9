"""A hypothesis strategy of cases for every operator that has a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st
from one_node import FILLS, Array, Case

from epu.graph import Float, Graph, Integer, Node, Quantized, Tensor
from epu.operators.layer_norm import ROLES
from epu.operators.masks import COMPARISONS, LOGIC
from epu.operators.smooth_functions import FUNCTIONS as SMOOTH

Draw = Callable[[Any], Any]
LAYER_NORM_PARTS = ("LayerNormMean", "LayerNormBits", "LayerNormRoot", "LayerNormScale")
Found = tuple[Graph, dict[str, Array]]

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 31)
LONG = (*EXTENTS, 32, 48, 64, 96, 161, 256)
extent = st.sampled_from(EXTENTS)
length = st.sampled_from(LONG)
leading = st.lists(st.sampled_from((1, 2, 3, 5)), max_size=2).map(tuple)
byte = st.sampled_from(("int8", "uint8"))
flag = st.booleans()
size = st.sampled_from((0.01, 0.9, 3.0, 100.0, 3e4))


def case(draw: Draw) -> Case:
    return Case(draw(st.integers(0, 1 << 20)), draw(st.sampled_from((*FILLS, "random", "random", "random"))))


def zero_point(draw: Draw, dtype: str) -> int:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return draw(st.sampled_from((0, 0, int(low), int(high), 3)))


def output_kind(draw: Draw, scale: Any) -> Quantized:
    dtype = draw(byte)
    return Quantized(dtype, (float(np.float32(scale)),), (zero_point(draw, dtype),))


def variable(draw: Draw, c: Case, name: str, shape: tuple[int, ...], symmetric: bool = False) -> Quantized:
    dtype = draw(byte)
    return c.quantized(name, shape, dtype, 0 if symmetric else zero_point(draw, dtype))


# ---- products


def dense(draw: Draw) -> Found:
    """QLinearMatMul by constant weights."""
    c, k, n = case(draw), draw(length), draw(length)
    rows = (*draw(leading), draw(extent))
    a = variable(draw, c, "a", (*rows, k))
    b = c.quantized("b", (k, n), draw(byte), constant=True, axis=draw(st.sampled_from((None, 1))))
    c.result((*rows, n), output_kind(draw, a.scale[0] * np.median(b.scale) * 90 * k**0.5))
    return c.graph("QLinearMatMul"), c.inputs


def batched(draw: Draw) -> Found:
    """QLinearMatMul of two variables, or with a constant of the same rank on either side."""
    c, batch, (m, k, n) = case(draw), draw(leading), (draw(extent) for _ in range(3))
    fixed = draw(st.sampled_from(("", "", "a", "b")))
    shared = draw(flag)
    a = c.quantized("a", (*batch, m, k), draw(byte), constant=fixed == "a")
    b = c.quantized("b", (k, n) if shared and fixed != "b" else (*batch, k, n), draw(byte), constant=fixed == "b")
    c.result((*batch, m, n), output_kind(draw, a.scale[0] * b.scale[0] * 60 * k**0.5))
    return c.graph("QLinearMatMul"), c.inputs


def gemm(draw: Draw) -> Found:
    c, m, k, n = case(draw), draw(extent), draw(length), draw(length)
    a = variable(draw, c, "a", (m, k))
    turned = draw(flag)
    shape, axis = ((n, k), 0) if turned else ((k, n), 1)
    b = c.quantized("b", shape, draw(byte), constant=True, axis=axis if draw(flag) else None)
    if draw(flag):
        c.bias(draw(st.sampled_from((1, n))))
    c.result((m, n), output_kind(draw, a.scale[0] * np.median(b.scale) * 80 * k**0.5))
    return c.graph("QGemm", transB=int(turned), alpha=draw(st.sampled_from((1.0, 0.7)))), c.inputs


@dataclass(frozen=True)
class Window:
    """A window over one or two spatial dimensions that fits the padded plane."""

    plane: tuple[int, ...]
    out: tuple[int, ...]
    attrs: dict[str, tuple[int, ...]]


def window(draw: Draw, most_padding: Callable[[int], int]) -> tuple[tuple[int, ...], Window]:
    """A kernel and its window; ``most_padding`` of a kernel extent."""
    rank = draw(st.sampled_from((1, 2, 2)))
    choices = ((1, 2, 3), (1, 2, 3), (1, 2), (0, 1, 4, 6))
    kernel, strides, dilations, more = (tuple(draw(st.sampled_from(each)) for _ in range(rank)) for each in choices)
    pads = tuple(draw(st.integers(0, most_padding(k))) for k in (*kernel, *kernel))
    plane, out = [], []
    for k, stride, dilation, extra, before, after in zip(kernel, strides, dilations, more, pads, pads[rank:]):
        reach = (k - 1) * dilation + 1
        plane.append(max(reach - before - after, 1) + extra)
        out.append((plane[-1] + before + after - reach) // stride + 1)
    return kernel, Window(tuple(plane), tuple(out), {"strides": strides, "dilations": dilations, "pads": pads})


def conv(draw: Draw) -> Found:
    """Plain, grouped and depthwise, over one or two spatial dimensions."""
    c, (kernel, seen) = case(draw), window(draw, lambda k: 2)
    groups = draw(st.sampled_from((1, 1, 2, 3, 8)))
    channels, filters = (draw(st.sampled_from((1, 1, 2, 3, 4, 7))) for _ in range(2))
    batch = draw(st.sampled_from((1, 1, 2)))
    x = variable(draw, c, "x", (batch, groups * channels, *seen.plane))
    axis = 0 if draw(flag) else None
    w = c.quantized("w", (groups * filters, channels, *kernel), draw(byte), constant=True, axis=axis)
    if draw(flag):
        c.bias(groups * filters)
    depth = channels * prod(kernel)
    kind = output_kind(draw, x.scale[0] * np.median(w.scale) * 80 * depth**0.5)
    c.result((batch, groups * filters, *seen.out), kind)
    return c.graph("QLinearConv", group=groups, **seen.attrs), c.inputs


def integer_sum(draw: Draw, build: Callable[[Draw], Found], op: str) -> Found:
    """The same product without a bias, and with the int32 sum itself as its result."""
    graph, inputs = build(draw)
    (node,) = graph.nodes
    node.op, node.inputs = op, [name for name in node.inputs if name != "bias"]
    graph.tensors["y"].type = Integer("int32")
    return graph, inputs


def float_conv(draw: Draw) -> Found:
    """Plain, grouped and depthwise, over one or two spatial dimensions."""
    c, (kernel, seen), limit = case(draw), window(draw, lambda k: 2), draw(size)
    groups = draw(st.sampled_from((1, 1, 2, 3, 8)))
    channels, filters = (draw(st.sampled_from((1, 1, 2, 3, 4, 7, 16))) for _ in range(2))
    batch = draw(st.sampled_from((1, 1, 2)))
    c.real("x", (batch, groups * channels, *seen.plane), limit)
    c.real("w", (groups * filters, channels, *kernel), 0.7, constant=True)
    room = limit * (channels * prod(kernel)) ** 0.5 * draw(st.sampled_from((0.05, 1.0, 20.0)))
    if draw(flag):
        c.real("b", (groups * filters,), room / 2, constant=True)
    c.result((batch, groups * filters, *seen.out), size=room)
    return c.graph("Conv", group=groups, **seen.attrs), c.inputs


def float_matmul(draw: Draw) -> Found:
    """Batches that broadcast; variables, or a constant on either side."""
    c, (m, k, n) = case(draw), (draw(extent), draw(length), draw(extent))
    sa, sb, out = draw(
        st.sampled_from(
            (((), (), ()), ((2, 3), (2, 3), (2, 3)), ((3,), (1,), (3,)), ((5, 1), (1, 2), (5, 2)), ((), (3,), (3,)))
        )
    )
    fixed = draw(st.sampled_from(("", "", "a", "b")))
    sizes = draw(size), draw(size)
    c.real("a", (*sa, m, k), sizes[0], constant=fixed == "a")
    c.real("b", (*sb, k, n), sizes[1], constant=fixed == "b")
    c.result((*out, m, n), size=sizes[0] * sizes[1] * k**0.5 * draw(st.sampled_from((0.05, 1.0, 20.0))))
    return c.graph("MatMul"), c.inputs


def float_gemm(draw: Draw) -> Found:
    c, (m, k, n), turned = case(draw), (draw(extent), draw(length), draw(extent)), draw(flag)
    c.real("a", (m, k), draw(size))
    c.real("b", (n, k) if turned else (k, n), 0.7, constant=draw(flag))
    if draw(flag):
        c.real("c", draw(st.sampled_from(((n,), (1,), (1, n)))), 0.01, constant=True)
    c.result((m, n))
    return c.graph("Gemm", transB=int(turned)), c.inputs


# ---- element by element


def two_shapes(draw: Draw) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast, and the shape of both together."""
    full = tuple(draw(st.lists(extent, min_size=1, max_size=4)))
    a, b = (tuple(1 if draw(st.integers(0, 3)) == 0 else n for n in full) for _ in range(2))
    b = b[draw(st.integers(0, len(b))) :]
    return a, b, tuple(np.broadcast_shapes(a, b))


def pair(draw: Draw, op: str, factor: float) -> Found:
    c, (sa, sb, out) = case(draw), two_shapes(draw)
    a = variable(draw, c, "a", sa)
    dtype = draw(byte)
    b = c.quantized("b", sb, dtype, zero_point(draw, dtype), constant=draw(flag))
    size = a.scale[0] + b.scale[0] if op == "QLinearAdd" else a.scale[0] * b.scale[0] * 90
    c.result(out, output_kind(draw, size * factor))
    return c.graph(op), c.inputs


def qlinear_add(draw: Draw) -> Found:
    return pair(draw, "QLinearAdd", draw(st.sampled_from((0.6, 1.0))))


def qlinear_mul(draw: Draw) -> Found:
    return pair(draw, "QLinearMul", draw(st.sampled_from((0.6, 1.0))))


def shape_of(draw: Draw) -> tuple[int, ...]:
    return tuple(draw(st.lists(extent, min_size=1, max_size=4)))


def unary(draw: Draw) -> Found:
    """A table with a covered float tensor."""
    c, shape = case(draw), shape_of(draw)
    variable(draw, c, "x", shape)
    kind = output_kind(draw, 0.1)
    tables = {name: c.raw((256,), kind.dtype, "random") for name in ("table", "table_ort")}
    inner = {"f": [float(each) for each in c.rng.uniform(-3, 3, 256)]}
    c.tensors["f"] = Tensor("f", shape, Float())
    c.result(shape, kind)
    return c.graph("QuantizedUnary", **tables, inner=inner), c.inputs


def dequantize(draw: Draw) -> Found:
    c, shape = case(draw), shape_of(draw)
    dtype = draw(byte)
    axis = draw(st.sampled_from((None, *range(len(shape)))))
    c.quantized("x", shape, dtype, zero_point(draw, dtype), axis=axis)
    c.result(shape)
    return c.graph("DequantizeLinear"), c.inputs


def dequantize_accumulator(draw: Draw) -> Found:
    """DequantizeLinear of int32."""
    c, shape = case(draw), shape_of(draw)
    c.add("x", shape, Quantized("int32", (float(c.scale()),), (0,)), c.raw(shape, "int32", c.fill), False)
    c.result(shape, size=draw(size))
    return c.graph("DequantizeLinear"), c.inputs


def quantize(draw: Draw) -> Found:
    c, shape = case(draw), shape_of(draw)
    limit = draw(size)
    c.real("x", shape, limit)
    dtype, axis = draw(byte), draw(st.sampled_from((None, *range(len(shape)))))
    count = 1 if axis is None else shape[axis]
    scales = tuple(float(np.float32(limit / 60 * each)) for each in c.rng.uniform(0.5, 2, count))
    c.result(shape, Quantized(dtype, scales, (zero_point(draw, dtype),) * count, axis))
    return c.graph("QuantizeLinear"), c.inputs


def binary(draw: Draw, op: str) -> Found:
    c, (sa, sb, out) = case(draw), two_shapes(draw)
    sizes = draw(size), draw(size)
    fixed = draw(st.sampled_from(("", "", "a", "b")))
    for name, shape, limit in zip("ab", (sa, sb), sizes):
        c.real(name, shape, limit, constant=name == fixed)
    implied = sizes[0] * sizes[1] if op == "Mul" else sum(sizes)
    c.result(out, size=implied * draw(st.sampled_from((1.0, 20.0) if fixed else (0.05, 1.0, 20.0))))
    return c.graph(op), c.inputs


def divide(draw: Draw) -> Found:
    c, shape = case(draw), shape_of(draw)
    c.real("a", shape, draw(size))
    one, divisor = draw(st.sampled_from(((), (1,), (1, 1)))), draw(st.sampled_from((3.0, -8.0, 0.001, -17.7)))
    c.add("b", one, Float(), np.full(one, divisor, np.float32), True)
    c.result(np.broadcast_shapes(shape, one))
    return c.graph("Div"), c.inputs


def power(draw: Draw) -> Found:
    c, shape = case(draw), shape_of(draw)
    c.real("a", shape, draw(size))
    c.add("e", (), Float(), np.array(draw(st.sampled_from((0.5, 2.0, 3.0, 4.0))), np.float32), True)
    c.result(shape)
    return c.graph("Pow"), c.inputs


def relu(draw: Draw) -> Found:
    c, shape = case(draw), shape_of(draw)
    c.real("x", shape, draw(size))
    c.result(shape)
    return c.graph("Relu"), c.inputs


def clip(draw: Draw) -> Found:
    c, shape, limit = case(draw), shape_of(draw), draw(size)
    c.real("x", shape, limit)
    c.result(shape)
    bounds = draw(
        st.sampled_from(({}, {"min": 0.0}, {"max": limit / 3}, {"min": -limit / 2, "max": limit / 3}, {"max": 1e30}))
    )
    return c.graph("Clip", **bounds), c.inputs


def hard_sigmoid(draw: Draw) -> Found:
    c, shape = case(draw), shape_of(draw)
    c.real("x", shape, draw(size))
    c.result(shape)
    return c.graph(
        "HardSigmoid", **draw(st.sampled_from(({}, {"alpha": 1 / 6, "beta": 0.1}, {"alpha": 1e-14})))
    ), c.inputs


def element(draw: Draw, op: str) -> Found:
    c, shape = case(draw), shape_of(draw)
    c.real("x", shape, draw(size))
    if op == "PRelu":
        c.real("slope", shape[-1:], 0.9, constant=True)
    c.result(shape, size=draw(size))
    return c.graph(op, **({"alpha": draw(st.sampled_from((0.01, 0.3, -1.0)))} if op == "LeakyRelu" else {})), c.inputs


def comparison(draw: Draw, op: str) -> Found:
    """A comparison, or logic on a mask of it, read by a Where."""
    c, (sa, sb, out) = case(draw), two_shapes(draw)
    limit = draw(size)
    c.real("a", sa, limit)
    c.real("b", sb, limit * draw(st.sampled_from((1.0, 0.01))))
    c.result(out, size=limit * draw(st.sampled_from((0.3, 2.0))))
    first = op if op in COMPARISONS else "Less"
    c.tensors["m"] = Tensor("m", out, Integer("bool"))
    nodes, mask = [Node("n", first, ["a", "b"], ["m"])], "m"
    if op in LOGIC:
        c.tensors["k"] = Tensor("k", out[-1:], Integer("bool"), c.rng.integers(0, 2, out[-1:]).astype(bool))
        c.tensors["l"] = Tensor("l", out, Integer("bool"))
        nodes.append(Node("o", op, ["m"] if op == "Not" else ["m", "k"], ["l"]))
        mask = "l"
    nodes.append(Node("w", "Where", [mask, "a", "b"], ["y"]))
    return Graph("masks", nodes, c.tensors, ["a", "b"], ["y"]), c.inputs


def mask_move(draw: Draw) -> Found:
    """Masks as inputs, moved, read as numbers, and as outputs; numbers as a mask."""
    c, shape = case(draw), shape_of(draw)
    c.add("m", shape, Integer("bool"), c.rng.integers(0, 2, shape, np.int32), False)
    if draw(flag):
        c.result(shape, size=draw(st.sampled_from((1.0, 5.0))))
        return c.graph("Cast"), c.inputs
    turned = shape[::-1]
    c.tensors["x"] = Tensor("x", turned, Float(), range=(0.0, 1.0), range_source="op")
    for name in "ty":
        c.tensors[name] = Tensor(name, turned, Integer("bool"))
    nodes = [Node("t", "Transpose", ["m"], ["t"]), Node("c", "Cast", ["t"], ["x"]), Node("d", "Cast", ["x"], ["y"])]
    return Graph("masks", nodes, c.tensors, ["m"], ["y", "t"]), c.inputs


def divide_by_vector(draw: Draw) -> Found:
    c, shape = case(draw), shape_of(draw)
    c.real("a", shape, draw(size))
    c.real("b", shape[-1:], draw(size), constant=True)
    c.result(shape, size=draw(size))
    return c.graph("Div"), c.inputs


def quotient(draw: Draw) -> Found:
    c, (sa, sb, out) = case(draw), two_shapes(draw)
    c.real("a", sa, draw(size))
    c.real("b", sb, draw(size))
    c.result(out, size=draw(size))
    return c.graph("Div"), c.inputs


def smooth(draw: Draw, op: str) -> Found:
    c, shape = case(draw), shape_of(draw)
    c.real("x", shape, draw(st.sampled_from((1e-4, 0.9, 3.0, 20.0, 3e4))))
    c.result(shape, size=draw(st.sampled_from((1e-3, 1.0, 50.0))))
    return c.graph(op, **({"alpha": 0.7} if op == "Elu" else {})), c.inputs


# ---- rows and windows


def softmax_int8(draw: Draw) -> Found:
    """With and without a quantised result, the dequantised tensor covered or not."""
    c, shape = case(draw), (*draw(leading), draw(length))
    variable(draw, c, "x", shape)
    rounded, covered = draw(flag), draw(flag)
    c.tensors["p"], c.tensors["d"] = (Tensor(name, shape, Float()) for name in "pd")
    c.result(shape, output_kind(draw, 1 / 200) if rounded else None)
    shares = "p" if rounded else "y"
    return c.graph("SoftmaxInt8", axis=-1, probabilities=shares, dequantized="d" if covered else ""), c.inputs


def softmax(draw: Draw) -> Found:
    c, shape = case(draw), (*draw(leading), draw(length))
    c.real("x", shape, draw(size))
    c.result(shape)
    return c.graph("Softmax", axis=-1), c.inputs


def layer_norm(draw: Draw) -> Found:
    c, shape = case(draw), (*draw(leading), draw(length))
    axis = draw(st.sampled_from((-1, -1, 0)))
    inner = shape[axis:] if axis else shape
    c.real("x", shape, draw(size))
    c.real("gamma", inner, 2.0, constant=True)
    if draw(flag):
        c.real("beta", inner, 3.0, constant=True)
    c.result(shape)
    return c.graph("LayerNormalization", axis=axis, epsilon=draw(st.sampled_from((1e-5, 1e-12)))), c.inputs


def layer_norm_part(draw: Draw, op: str) -> Found:
    """A part of a layer norm, of rows with and without good divisors; its row operands as the parts before make them."""
    c, shape = case(draw), (*draw(leading), draw(st.sampled_from((1, 5, 96, 256, 257, 521))))
    row, limit = (*shape[:-1], 1), draw(size)
    c.real("x", shape, limit)
    if op != "LayerNormMean":
        c.real("mean", row, limit)
        c.inputs["mean"] = c.inputs["x"].astype(np.int64).mean(-1, keepdims=True).astype(np.int32)
    if op == "LayerNormScale":
        c.real("bits", row, 1.0)
        c.real("root", row, 1.0)
        c.inputs["bits"], c.inputs["root"] = (c.inputs["bits"] & 31) + 1, (c.inputs["root"] >> 2) | 1 << 30
        c.real("gamma", shape[-1:], 2.0, constant=True)
        if draw(flag):
            c.real("beta", shape[-1:], 3.0, constant=True)
    c.result(shape if op == "LayerNormScale" else row)
    return c.graph(op, axis=-1, epsilon=1e-5), c.inputs


def layer_norm_decomposed(draw: Draw) -> Found:
    c, shape = case(draw), (*draw(leading), draw(length))
    c.real("x", shape, draw(size))
    c.real("gamma", shape[-1:], 2.0, constant=True)
    c.real("beta", shape[-1:], 3.0, constant=True)
    c.result(shape)
    row = (*shape[:-1], 1)
    for role in ROLES:
        wide = role in ("centred", "square", "normalised", "scaled")
        c.tensors[role] = Tensor(role, shape if wide else row, Float())
    return c.graph("LayerNormDecomposed", epsilon=1e-5, **{role: role for role in ROLES}), c.inputs


def fold(draw: Draw, op: str) -> Found:
    c, shape = case(draw), (*draw(leading), draw(length))
    limit = draw(size)
    c.real("x", shape, limit)
    count, keep = draw(st.integers(1, len(shape))), draw(flag)
    room = limit * draw(st.sampled_from((1.0, 0.1))) * prod(shape[-count:]) ** (0.5 if op == "ReduceL2" else 1.0)
    c.result((*shape[:-count], *((1,) * count if keep else ())), size=room)
    return c.graph(op, axes=tuple(range(-count, 0)), keepdims=int(keep)), c.inputs


def softmax_part(draw: Draw, op: str) -> Found:
    """The parts of a long softmax, on what the parts before can make."""
    c, shape = case(draw), (*draw(leading), draw(length))
    row = (*shape[:-1], 1)
    if op == "SoftmaxExp":
        c.real("x", shape, draw(size))
        c.real("top", row, 3.0)
        c.tensors["top"].range = c.tensors["x"].range
        c.inputs["top"] = c.inputs["x"].max(-1, keepdims=True)
    else:
        c.real("e", shape, 1.0)
        c.tensors["e"].range = (-0.9, 0.9)
        c.inputs["e"] = np.abs(c.inputs["e"] >> 1) + 1
    if op == "SoftmaxShare":
        c.real("bits", row, 1.0)
        c.real("factor", row, 1.0)
        c.inputs["bits"], c.inputs["factor"] = (c.inputs["bits"] & 31) + 20, (c.inputs["factor"] >> 2) | 1 << 30
    c.result(row if op in ("SoftmaxBits", "SoftmaxFactor") else shape)
    return c.graph(op), c.inputs


def reduce_mean(draw: Draw) -> Found:
    c, shape = case(draw), (*draw(leading), draw(length))
    c.real("x", shape, draw(size))
    count = draw(st.integers(1, len(shape)))
    axes = tuple(range(-count, 0))
    keep = draw(flag)
    c.result((*shape[:-count], *((1,) * count if keep else ())))
    return c.graph("ReduceMean", axes=axes, keepdims=int(keep)), c.inputs


def image(draw: Draw) -> tuple[int, ...]:
    return (draw(st.sampled_from((1, 2))), *(draw(extent) for _ in range(3)))


def global_average(draw: Draw) -> Found:
    c, shape = case(draw), image(draw)
    c.real("x", shape, draw(size))
    c.result((*shape[:2], 1, 1))
    return c.graph("GlobalAveragePool"), c.inputs


def qlinear_global_average(draw: Draw) -> Found:
    c, shape = case(draw), image(draw)
    x = variable(draw, c, "x", shape)
    c.result((*shape[:2], 1, 1), output_kind(draw, x.scale[0] * draw(st.sampled_from((0.1, 0.9)))))
    return c.graph("QLinearGlobalAveragePool", channels_last=0), c.inputs


def max_pool(draw: Draw) -> Found:
    """Bytes or fixed point, over one or two spatial dimensions."""
    c, (kernel, seen) = case(draw), window(draw, lambda k: k // 2)
    shape = (draw(st.sampled_from((1, 2))), draw(extent))
    kind = (
        variable(draw, c, "x", (*shape, *seen.plane)) if draw(flag) else c.real("x", (*shape, *seen.plane), draw(size))
    )
    c.result((*shape, *seen.out), kind)
    return c.graph("MaxPool", kernel_shape=kernel, **seen.attrs), c.inputs


def transpose(draw: Draw) -> Found:
    c, shape = case(draw), shape_of(draw)
    order = tuple(draw(st.permutations(range(len(shape)))))
    attrs = {"perm": order} if draw(flag) else {}
    out = [shape[k] for k in (order if attrs else reversed(range(len(shape))))]
    kind = variable(draw, c, "x", shape) if draw(flag) else c.real("x", shape, draw(size))
    c.result(out, kind)
    return c.graph("Transpose", **attrs), c.inputs


ELEMENT = ("Neg", "Abs", "Reciprocal", "Sqrt", "Log", "LeakyRelu", "PRelu", "HardSwish")
FAMILIES: dict[str, tuple[Callable[[Draw], Found], ...]] = {
    "QLinearMatMul": (dense, batched),
    "QGemm": (gemm,),
    "QLinearConv": (conv,),
    "MatMulInteger": tuple(partial(integer_sum, build=build, op="MatMulInteger") for build in (dense, batched)),
    "ConvInteger": (partial(integer_sum, build=conv, op="ConvInteger"),),
    "Conv": (float_conv,),
    "MatMul": (float_matmul,),
    "Gemm": (float_gemm,),
    "QLinearAdd": (qlinear_add,),
    "QLinearMul": (qlinear_mul,),
    "QuantizedUnary": (unary,),
    "QuantizeLinear": (quantize,),
    "DequantizeLinear": (dequantize, dequantize_accumulator),
    "Add": (partial(binary, op="Add"),),
    "Sub": (partial(binary, op="Sub"),),
    "Mul": (partial(binary, op="Mul"),),
    "Div": (divide, divide_by_vector, quotient),
    "Max": (partial(binary, op="Max"),),
    "Min": (partial(binary, op="Min"),),
    **{op: (partial(element, op=op),) for op in ELEMENT},
    **{op: (partial(comparison, op=op),) for op in (*COMPARISONS, *LOGIC, "Where")},
    "Cast": (mask_move,),
    "Pow": (power,),
    "Relu": (relu,),
    "Clip": (clip,),
    "HardSigmoid": (hard_sigmoid,),
    **{op: (partial(smooth, op=op),) for op in SMOOTH},
    "SoftmaxInt8": (softmax_int8,),
    "Softmax": (softmax,),
    "LayerNormalization": (layer_norm,),
    "LayerNormDecomposed": (layer_norm_decomposed,),
    "ReduceMean": (reduce_mean,),
    **{op: (partial(fold, op=op),) for op in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceL2")},
    **{op: (partial(softmax_part, op=op),) for op in ("SoftmaxExp", "SoftmaxBits", "SoftmaxFactor", "SoftmaxShare")},
    **{op: (partial(layer_norm_part, op=op),) for op in LAYER_NORM_PARTS},
    "GlobalAveragePool": (global_average,),
    "QLinearGlobalAveragePool": (qlinear_global_average,),
    "MaxPool": (max_pool,),
    "Transpose": (transpose,),
}


def cases(build: Callable[[Draw], Found]) -> st.SearchStrategy[Found]:
    return st.composite(lambda draw: build(draw))()
