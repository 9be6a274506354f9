"""Axes without good divisors: parts in place change cycles, never values; long rows of prime length compile."""

from __future__ import annotations

import numpy as np
import pytest
from one_node import MACHINES, Case, assert_same_answers

from epu import in_place
from epu.graph import Graph, Quantized

SMALL = MACHINES["QC-N"]
Inputs = dict[str, "np.ndarray"]


def coarse(scale: float) -> Quantized:
    return Quantized("int8", (scale,), (0,))


def matmul(m: int, k: int, n: int) -> tuple[Graph, Inputs]:
    c = Case(1)
    c.quantized("a", (m, k))
    c.quantized("b", (k, n), constant=True)
    c.result((m, n), coarse(30.0))
    return c.graph("QLinearMatMul"), c.inputs


def attention(heads: int, m: int, k: int, n: int) -> tuple[Graph, Inputs]:
    c = Case(2)
    c.real("a", (heads, m, k), 3.0)
    c.real("b", (heads, k, n), 3.0)
    c.result((heads, m, n), size=100.0)
    return c.graph("MatMul"), c.inputs


def conv(channels: int, filters: int, size: int) -> tuple[Graph, Inputs]:
    c = Case(3)
    c.quantized("x", (1, channels, size, size))
    c.quantized("w", (filters, channels, 3, 3), constant=True)
    c.result((1, filters, size, size), coarse(30.0))
    return c.graph("QLinearConv", group=1, pads=(1,) * 4, strides=(1, 1), dilations=(1, 1)), c.inputs


def layer_norm(rows: int, length: int) -> tuple[Graph, Inputs]:
    c = Case(4)
    c.real("x", (rows, length), 3.0)
    for name in ("gamma", "beta"):
        c.real(name, (length,), 2.0, constant=True)
    c.result((rows, length))
    return c.graph("LayerNormalization", axis=-1, epsilon=1e-5), c.inputs


def softmax(rows: int, length: int) -> tuple[Graph, Inputs]:
    c = Case(5)
    c.real("x", (rows, length), 3.0)
    c.result((rows, length))
    return c.graph("Softmax", axis=-1), c.inputs


def add(*shape: int) -> tuple[Graph, Inputs]:
    c = Case(6)
    for name in "ab":
        c.quantized(name, shape)
    c.result(shape, coarse(0.5))
    return c.graph("QLinearAdd"), c.inputs


def transpose(rows: int, columns: int) -> tuple[Graph, Inputs]:
    c = Case(7)
    c.quantized("a", (1, rows, columns))
    c.result((1, columns, rows), c.tensors["a"].type)
    return c.graph("Transpose", perm=(0, 2, 1)), c.inputs


CUT = {  # operators that run in parts on QC-N
    "matmul": lambda: matmul(17, 24, 19),
    "attention": lambda: attention(2, 17, 4, 19),
    "conv": lambda: conv(2, 4, 19),
    "layer norm": lambda: layer_norm(37, 32),
    "add": lambda: add(1009),
    "transpose": lambda: transpose(67, 64),
}


@pytest.mark.parametrize("name", CUT)
def test_parts_need_fewer_cycles_for_the_same_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "LIGHT", 0)
    graph, inputs = CUT[name]()
    (parts,) = assert_same_answers(graph, inputs, [SMALL])
    monkeypatch.setattr(in_place.InPlaceSearch, "awkward_axes", lambda search: [])
    (whole,) = assert_same_answers(graph, inputs, [SMALL])
    assert np.array_equal(whole.result.outputs["y"], parts.result.outputs["y"])
    assert parts.result.cycles.total < whole.result.cycles.total


@pytest.mark.parametrize(("build", "length"), [(layer_norm, 197), (layer_norm, 521), (softmax, 197)])
def test_long_prime_rows(build, length: int) -> None:  # type: ignore[no-untyped-def]
    assert_same_answers(*build(2, length), [SMALL])


@pytest.mark.slow
@pytest.mark.parametrize("build", [layer_norm, softmax])
@pytest.mark.parametrize("length", [509, 521, 1021, 2053, 4099])
def test_longer_prime_rows(build, length: int) -> None:  # type: ignore[no-untyped-def]
    assert_same_answers(*build(3, length), [SMALL])


@pytest.mark.slow
@pytest.mark.parametrize("case", [(197, 197, 197), (211, 211, 211), (197, 192, 576)])
def test_matrices_of_a_vision_transformer(case: tuple[int, int, int]) -> None:
    """Within three times the cycles of the next rounder extents, whose rows the bus packs into words."""
    (found,) = assert_same_answers(*matmul(*case), [SMALL])
    rounder = tuple(-(-extent // 8) * 8 for extent in case)
    (other,) = assert_same_answers(*matmul(*rounder), [SMALL])  # type: ignore[arg-type]
    assert found.result.cycles.total < 3 * other.result.cycles.total
