"""Add and Mul of QDQ groups with rounding="ort": float32 after each step, in row, golden kernel and simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from one_node import MACHINES, compile_where_it_fits, run

from epu.graph import Graph, Node, Quantized, Tensor
from epu.operators.float32_path import float32_path
from epu.reference import run_node
from epu.simulator.fixed_point import decode_raw

Array = NDArray[Any]
OPS = ("QLinearAdd", "QLinearMul")


def group(op: str, seed: int) -> tuple[Graph, dict[str, Array]]:
    """A group of drawn scales and codes; every third has equal scales, of which every second sum or so is a tie."""
    rng = np.random.default_rng(seed)
    dtype = ("int8", "uint8")[seed % 2]
    sa, sb = np.exp(rng.uniform(-6, 0, 2)).astype(np.float32)
    sb = sa if seed % 3 == 0 else sb
    size = sa + sb if op == "QLinearAdd" else sa * sb * np.float32(100)
    sy = np.float32(2) * sa if seed % 6 == 0 else np.float32(size * rng.uniform(0.3, 1.5))
    low = 0 if dtype == "int8" else 128
    zeros = [0, 0, low] if seed % 5 == 0 and dtype == "int8" else (low + rng.integers(-20, 21, 3)).tolist()
    kinds = [Quantized(dtype, (float(scale),), (zero,)) for scale, zero in zip((sa, sb, sy), zeros)]
    shape = (5, 700)
    limits = np.iinfo(dtype)
    inputs = {name: rng.integers(limits.min, limits.max + 1, shape).astype(dtype) for name in "ab"}
    tensors = {name: Tensor(name, shape, kind) for name, kind in zip("aby", kinds)}
    inner = ("Add" if op == "QLinearAdd" else "Mul", ("r",))
    covers = [("da", "DequantizeLinear", ("xa",)), ("op", *inner), ("n", "QuantizeLinear", ("y",))]
    return Graph("group", [Node("n", op, ["a", "b"], ["y"], covers=covers)], tensors, ["a", "b"], ["y"]), inputs


def float32_steps(graph: Graph, inputs: dict[str, Array]) -> tuple[Array, Array]:
    """The float result and the codes, as NumPy's float32 has them."""
    kinds: Any = [graph.tensors[name].type for name in "aby"]
    a, b = (
        (inputs[name].astype(np.int32) - kind.zero_point[0]).astype(np.float32) * np.float32(kind.scale[0])
        for name, kind in zip("ab", kinds)
    )
    real = a + b if graph.nodes[0].op == "QLinearAdd" else a * b
    target, limits = kinds[2], np.iinfo(kinds[2].dtype)
    codes = np.rint(real / np.float32(target.scale[0])) + target.zero_point[0]
    return real, np.clip(codes, limits.min, limits.max).astype(target.dtype)


@pytest.mark.parametrize("op", OPS)
def test_the_row_is_float32_bit_for_bit(op: str) -> None:
    held = 0
    for seed in range(120):
        graph, inputs = group(op, seed)
        if float32_path(graph.nodes[0], graph) is None:
            continue
        held += 1
        found = run_node(graph.nodes[0], graph, inputs, "ort")["y"]
        np.testing.assert_array_equal(found, float32_steps(graph, inputs)[1])
    assert held > 100


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("seed", [0, 1, 4, 6])
def test_kernel_golden_and_simulator_are_float32_too(op: str, seed: int) -> None:
    graph, inputs = group(op, seed)
    assert float32_path(graph.nodes[0], graph) is not None
    module = compile_where_it_fits(graph, MACHINES["QC-N"], "ort")
    assert module is not None
    found, golden = run(module, inputs).observed, module.golden(inputs)
    real, codes = float32_steps(graph, inputs)
    np.testing.assert_array_equal(golden["y"], codes)
    np.testing.assert_array_equal(found["y"], codes)
    np.testing.assert_array_equal(found["r"], golden["r"])
    (tap, *_) = (each for each in module.program.debug.taps if each.tensor == "r")
    np.testing.assert_array_equal(decode_raw(tap.decode, found["r"]), real)


@pytest.mark.parametrize("op", OPS)
def test_a_node_that_is_no_group_and_exact_rounding_are_left_alone(op: str) -> None:
    graph, inputs = group(op, 6)
    group_exact = run_node(graph.nodes[0], graph, inputs, "exact")["y"]
    graph.nodes[0].covers.clear()
    assert float32_path(graph.nodes[0], graph) is None
    np.testing.assert_array_equal(run_node(graph.nodes[0], graph, inputs, "exact")["y"], group_exact)


def test_scales_that_64_bits_cannot_hold_keep_the_other_form() -> None:
    graph, _ = group("QLinearAdd", 1)
    graph.tensors["b"].type = Quantized("uint8", (2.0**-40,), (0,))
    assert float32_path(graph.nodes[0], graph) is None
