"""Cases that random draws would meet too rarely: every extreme of every product, and two ways to say one thing."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from one_node import MACHINES, Case, assert_same_answers, run

from epu.compiler import compile_graph
from epu.graph import Float, Quantized, Tensor

SMALL = MACHINES["QC-N"]
TWO = [MACHINES["QC-N, 16 MACs"], MACHINES["QC-P, 16 MACs, LRM 2 kB"]]
EXTREMES = ("lowest", "highest")


@pytest.mark.parametrize(("left", "right"), list(product(EXTREMES, EXTREMES)))
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_products_of_extremes(left: str, right: str, dtype: str) -> None:
    """The longest sums that a tile accumulates, all of one sign; the result neither wraps nor loses a bit."""
    c, depth = Case(0), 523
    kinds = [Quantized(dtype, (0.01,), (0,))] * 2
    c.add("a", (3, depth), kinds[0], c.raw((3, depth), dtype, left), False)
    c.add("b", (depth, 5), kinds[1], c.raw((depth, 5), dtype, right), True)
    c.result((3, 5), Quantized("int8", (0.01 * 0.01 * depth * 255,), (0,)))
    for rounding in ("exact", "ort"):
        assert len(assert_same_answers(c.graph("QLinearMatMul"), c.inputs, TWO, rounding)) == 2


@pytest.mark.parametrize("fill", EXTREMES)
@pytest.mark.parametrize("width", [1, 7, 64])
def test_softmax_of_equal_values(fill: str, width: int) -> None:
    c = Case(2, fill)
    c.real("x", (3, width), 4.0)
    c.result((3, width))
    (found,) = assert_same_answers(c.graph("Softmax", axis=-1), c.inputs, [MACHINES["QC-U"]])
    assert len(np.unique(found.result.outputs["y"])) == 1


@pytest.mark.parametrize("fill", EXTREMES)
@pytest.mark.parametrize("width", [1, 7, 161])
def test_layer_norm_without_variance(fill: str, width: int) -> None:
    """What is left is rounding of the mean, far below one unit."""
    c = Case(2, fill)
    c.real("x", (3, width), 4.0)
    c.real("gamma", (width,), 2.0, constant=True)
    c.result((3, width))
    (found,) = assert_same_answers(c.graph("LayerNormalization", axis=-1), c.inputs, [MACHINES["QC-U"]])
    assert np.abs(found.result.outputs["y"]).max() < 1 << 16


def test_one_outlier_in_a_row() -> None:
    """The largest differences that an exponential and a centred value can meet."""
    c = Case(2, "lowest")
    c.real("x", (3, 8), 4.0)
    c.inputs["x"][1, 3] = np.iinfo(np.int32).max
    c.result((3, 8))
    first = assert_same_answers(c.graph("Softmax", axis=-1), c.inputs, TWO)[0]
    shares = first.result.outputs["y"][1]
    assert shares[3] == shares.max() > 0
    assert not np.delete(shares, 3).any()


def test_one_spatial_dimension_is_a_height_of_one() -> None:
    flat, tall = Case(8), Case(8)
    for c, kernel, plane in ((flat, (3,), (23,)), (tall, (1, 3), (1, 23))):
        c.add("x", (2, 4, *plane), Quantized("int8", (0.05,), (-7,)), c.raw((2, 4, *plane), "int8", "random"), False)
        w = np.random.default_rng(1).integers(-128, 127, (6, 2, *kernel), np.int8, endpoint=True)
        c.add("w", w.shape, Quantized("int8", (0.01,) * 6, (0,) * 6, 0), w, True)
        c.bias(6)
        c.result((2, 6, *plane[:-1], 12), Quantized("int8", (0.1,), (3,)))
    graphs = (
        flat.graph("QLinearConv", group=2, strides=(2,), pads=(1, 1)),
        tall.graph("QLinearConv", group=2, strides=(1, 2), pads=(0, 1, 0, 1)),
    )
    one, two = (assert_same_answers(graph, c.inputs, [SMALL])[0] for graph, c in zip(graphs, (flat, tall)))
    assert one.result.outputs["y"].tobytes() == two.result.outputs["y"].tobytes()
    assert one.result.cycles == two.result.cycles


def test_an_operand_may_be_both_operands() -> None:
    c = Case(3)
    c.quantized("x", (4, 8))
    c.node.inputs.append("x")
    c.result((4, 8), Quantized("int8", (0.2,), (0,)))
    for op in ("QLinearAdd", "QLinearMul"):
        assert_same_answers(c.graph(op), c.inputs, [SMALL, MACHINES["QC-P, OCM 2 kB"]])


def test_a_tap_shows_all_rows_of_a_split_kernel() -> None:
    """Softmax of more rows than the OCM holds: the shares are recorded part by part."""
    c = Case(4)
    c.quantized("x", (40, 64))
    for name in ("real", "shares"):
        c.tensors[name] = Tensor(name, (40, 64), Float())
    c.result((40, 64), Quantized("int8", (1 / 128,), (0,)))
    graph = c.graph("SoftmaxInt8", axis=-1, probabilities="shares", dequantized="real")
    (found,) = assert_same_answers(graph, c.inputs, [MACHINES["QC-N, OCM 4 kB"]])
    assert set(found.observed) == {"y", "shares", "real"}
    assert len({tap.pc for tap in found.module.program.debug.taps}) > 1


def test_reruns_of_one_program_are_independent() -> None:
    """Nothing of a run is left for the next one."""
    c = Case(5)
    c.quantized("x", (4, 8))
    c.result((4, 8), Quantized("int8", (0.2,), (0,)))
    c.quantized("b", (8,), constant=True)
    module = compile_graph(c.graph("QLinearMul"), SMALL)
    first = run(module, c.inputs).result.outputs["y"]
    run(module, {"x": np.zeros((4, 8), np.int8)})
    np.testing.assert_array_equal(run(module, c.inputs).result.outputs["y"], first)
