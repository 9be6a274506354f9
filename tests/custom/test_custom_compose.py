"""Compositions: of our operators, of custom kernels, of other compositions."""

from __future__ import annotations

import numpy as np
from custom_cases import BELOW, OPS, SQUARE, call_node, frac, model_of, square_types, typed

from epu.compiler import CompiledModule, compile_graph
from epu.custom_compose import Composer
from epu.custom_ops import CustomCall, CustomOp
from epu.graph import Fixed
from epu.hw_config import HWConfig
from epu.reference import run_reference
from epu.simulator.simulation import simulate


def below_square(build: Composer, call: CustomCall) -> str:
    """x*x + bias, less its maximum per row: two kernels of the user."""
    squared = build.custom(SQUARE, [each.name for each in call.inputs], tensor="squared")
    return build.custom(BELOW, [squared])


def halved(build: Composer, call: CustomCall) -> str:
    """Half of another composition."""
    inner = build.custom(BELOW_SQUARE, [each.name for each in call.inputs])
    return build.elementwise("Mul", inner, build.constant(0.5))


BELOW_SQUARE = CustomOp("belowSquare", square_types, compose=below_square)
HALVED = CustomOp("halved", square_types, compose=halved)


def compiled(op: CustomOp, **attributes: object) -> CompiledModule:
    bias = {"bias": np.linspace(-1, 1, 8).astype(np.float32)}
    model = model_of([call_node(op.name, ["x", "bias"], "y", **attributes)], (4, 8), bias)
    ranges = {"x": (-4.0, 4.0), "y": (-20.0, 0.0), "square of x": (-1.0, 30.0)}
    return compile_graph(typed(model, ranges, {**OPS, op.name: op}), HWConfig(product="QC-N").machine)


def assert_means(module: CompiledModule, factor: float) -> None:
    x = np.random.default_rng(0).uniform(-4, 4, (4, 8))
    raw = {"x": np.rint(x * 2.0 ** frac(module.graph.tensor("x"))).astype(np.int32)}
    found = simulate(module.program, raw).outputs["y"]
    assert np.array_equal(found, module.golden(raw)["y"])
    assert np.array_equal(found, run_reference(module.graph, raw)["y"])
    square = x**2 + np.linspace(-1, 1, 8)
    expected = factor * (square - square.max(axis=-1, keepdims=True))
    assert np.abs(found * 2.0 ** -frac(module.graph.tensor("y")) - expected).max() < 1e-6


def test_a_composition_of_custom_kernels() -> None:
    module = compiled(BELOW_SQUARE)
    assert_means(module, 1.0)
    assert [node.name for node in module.graph.nodes] == ["custom:square", "custom:below"]


def test_a_composition_of_a_composition() -> None:
    module = compiled(HALVED)
    assert_means(module, 0.5)
    assert [node.name for node in module.graph.nodes] == [
        "custom:belowSquare/square",
        "custom:belowSquare/below",
        "custom:Mul",
    ]


def test_tensors_that_the_node_names_have_their_calibrated_range() -> None:
    named = compiled(BELOW_SQUARE, tensors=["squared=square of x"]).graph.tensor("square of x")
    assert named.range == (-1.0, 30.0)
    assert named.range_source == "tranges"
    implied = compiled(BELOW_SQUARE).graph.tensor("custom:squared")
    assert implied.range == (-1.0, 17.0)
    assert implied.type == Fixed(26)
