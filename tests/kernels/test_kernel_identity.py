"""Kernels with the same key are one kernel: what the key leaves out must be in parameters, not in the code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from one_node import Case

from epu.compiler import PASSES
from epu.graph import Float, Graph, Quantized
from epu.lowering.table import lower
from epu.tir_schedules.kernel import Kernel
from epu.tir_schedules.tvm_api import tvm

BYTES = ("int8", "uint8")
ZEROS = (0, 5)
SHAPE = (2, 4)


def pairs(op: str) -> Iterator[Graph]:
    """Every mix of types and zero points, with two scales."""
    for types, zeros, constant, scale in product(
        product(BYTES, repeat=3), product(ZEROS, repeat=3), (0, 1), (0.1, 0.3)
    ):
        c = Case(0)
        c.quantized("a", SHAPE, types[0], zeros[0])
        c.quantized("b", SHAPE, types[1], zeros[1], constant=bool(constant))
        c.result(SHAPE, Quantized(types[2], (scale,), (zeros[2],)))
        yield c.graph(op)


def sums(op: str) -> Iterator[Graph]:
    for sizes, constant, out in product(product((1.0, 3.0), repeat=2), ("", "a", "b"), (4.0, 8.0, 64.0)):
        c = Case(0)
        for name, limit in zip("ab", sizes):
            c.real(name, SHAPE, limit, constant=name == constant)
        c.result(SHAPE, size=out)
        yield c.graph(op)


def products() -> Iterator[Graph]:
    for types, zeros, axis, op in product(
        product(BYTES, repeat=3), product(ZEROS, repeat=2), (None, 1), ("QLinearMatMul", "QGemm")
    ):
        c = Case(0)
        c.quantized("a", SHAPE, types[0], zeros[0])
        c.quantized("b", (4, 4), types[1], constant=True, axis=axis)
        c.result((2, 4), Quantized(types[2], (0.5,), (zeros[1],)))
        yield c.graph(op)


def convolutions() -> Iterator[Graph]:
    """Zero points are in the code where they pad, and in the bias where they do not."""
    for types, zero, pads, stride, axis in product(product(BYTES, repeat=3), (-1, 0, 5), (0, 1), (1, 2), (None, 0)):
        c = Case(0)
        c.quantized("x", (1, 2, 4, 4), types[0], max(zero, 0) if types[0] == "uint8" else zero)
        c.quantized("w", (2, 2, 3, 3), types[1], constant=True, axis=axis)
        edge = (4 + 2 * pads - 3) // stride + 1
        c.result((1, 2, edge, edge), Quantized(types[2], (0.5,), (0,)))
        yield c.graph("QLinearConv", pads=(pads,) * 4, strides=(stride,) * 2)


def conversions() -> Iterator[Graph]:
    for kind, zero, axis, scale in product(BYTES, ZEROS, (None, 0, 1), (0.1, 1e-9)):
        count = 1 if axis is None else SHAPE[axis]
        c = Case(0)
        c.real("x", SHAPE, 3.0)
        c.result(SHAPE, Quantized(kind, (max(scale, 1e-8),) * count, (zero,) * count, axis))
        yield c.graph("QuantizeLinear")
        c = Case(0)
        c.quantized("x", SHAPE, kind, zero, axis=axis)
        c.result(SHAPE)
        yield c.graph("DequantizeLinear")


def quotients() -> Iterator[Graph]:
    for divisor, op in product((3.0, -3.0, 0.001), ("Div",)):
        c = Case(0)
        c.real("a", SHAPE, 3.0)
        c.add("b", (1,), Float(), np.full(1, divisor, np.float32), True)
        c.result(SHAPE)
        yield c.graph(op)


GRAPHS: dict[str, Callable[[], Iterator[Graph]]] = {
    "QLinearAdd": lambda: pairs("QLinearAdd"),
    "QLinearMul": lambda: pairs("QLinearMul"),
    "Add": lambda: sums("Add"),
    "Sub": lambda: sums("Sub"),
    "Mul": lambda: sums("Mul"),
    "products": products,
    "convolutions": convolutions,
    "conversions": conversions,
    "quotients": quotients,
}


def kernel_of(graph: Graph, rounding: str) -> Kernel:
    for each in PASSES:
        graph = each(graph)
    return lower(graph.nodes[0], graph, rounding).kernel


@pytest.mark.parametrize("name", GRAPHS)
def test_equal_keys_mean_equal_code(name: str) -> None:
    known: dict[Any, Any] = {}
    shared = 0
    for graph, rounding in product(GRAPHS[name](), ("exact", "ort")):
        kernel = kernel_of(graph, rounding)
        function = kernel.prim_func(observe=True)
        shared += kernel.key in known
        first = known.setdefault(kernel.key, function)
        assert tvm.ir.structural_equal(first, function), f"{kernel.key} stands for two kernels"
    assert shared
