"""Fixed-point operators against float64 and against ONNX Runtime, through ranges and fraction bits as compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import erf
from typing import Any

import numpy as np
import pytest
from single_node import float_graph, onnx_float_answer

from epu.graph import Fixed, Graph
from epu.passes import assign_fraction_bits, assign_ranges, check_limits
from epu.reference import run_reference
from epu.simulator.fixed_point import decode_raw, encode_real
from epu.simulator.program import Decode

Array = Any
LEAST_PSNR = 133.0


@dataclass
class Case:
    """A float node: what it computes in float64, how to draw its inputs, its constants and attributes."""

    op: str
    function: Callable[..., Array]
    inputs: Callable[[np.random.Generator], list[Array]]
    constants: list[Any] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)
    least_psnr_of_ort: float = 120.0

    def __str__(self) -> str:
        return f"{self.op}-{sorted(self.attrs)}-{len(self.constants)}"


def normal(
    *shapes: tuple[int, ...], mean: float = 0.5, deviation: float = 3.0
) -> Callable[[np.random.Generator], list[Array]]:
    return lambda rng: [rng.normal(mean, deviation, shape).astype(np.float32) for shape in shapes]


def positive(
    *shapes: tuple[int, ...], low: float = 0.01, high: float = 40.0
) -> Callable[[np.random.Generator], list[Array]]:
    return lambda rng: [rng.uniform(low, high, shape).astype(np.float32) for shape in shapes]


def quotient_inputs(rng: np.random.Generator) -> list[Array]:
    divisor = (np.exp(rng.uniform(-3, 3, (6, 40, 1))) * rng.choice([-1, 1], (6, 40, 1))).astype(np.float32)
    return [rng.normal(size=(6, 40, 70)).astype(np.float32), divisor]


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


GAMMA = np.random.default_rng(1).normal(1, 0.3, 100).astype(np.float32)
BETA = np.random.default_rng(2).normal(0, 0.3, 100).astype(np.float32)


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * gamma + beta


def windows(x: Array) -> Array:
    return np.lib.stride_tricks.sliding_window_view(x, (3, 2), (2, 3))[:, :, ::2, ::1]


POOL = {"kernel_shape": [3, 2], "strides": [2, 1]}
CASES = [
    Case("Add", np.add, normal((4, 50, 30), (50, 1))),
    Case("Add", np.add, normal((4, 50, 30)), [np.float32([1e-5])]),
    Case("Sub", np.subtract, normal((4, 50, 30), (4, 50, 1))),
    Case("Mul", np.multiply, normal((4, 50, 30), (4, 50, 30))),
    Case("Mul", np.multiply, normal((4, 50, 30)), [np.float32([0.0173])]),
    Case("Div", np.divide, quotient_inputs),
    Case("Div", np.divide, normal((4, 50, 30)), [np.float32([-6.0])]),
    Case("Pow", np.power, normal((4, 50, 30)), [np.float32(2)]),
    Case("Pow", np.power, positive((4, 50, 30)), [np.float32(0.5)]),
    Case("Sqrt", np.sqrt, positive((40, 500))),
    Case("Sqrt", np.sqrt, positive((40, 500), low=0.0, high=1e-4)),
    Case("ReduceMean", lambda x: x.mean(-1, keepdims=True), normal((9, 40, 256)), attrs={"axes": [-1], "keepdims": 1}),
    Case("ReduceMean", lambda x: x.mean((1, 2)), normal((90, 30, 7)), attrs={"axes": [1, 2], "keepdims": 0}),
    Case("Softmax", softmax, normal((40, 360)), attrs={"axis": -1}),
    Case("Softmax", softmax, normal((4, 40, 17), deviation=30.0), attrs={"axis": 2}),
    Case("Softmax", softmax, normal((40, 1)), attrs={"axis": 1}),
    Case("LayerNormalization", layer_norm, normal((70, 100)), [GAMMA, BETA], {"axis": -1, "epsilon": 1e-5}),
    Case(  # ONNX Runtime takes the mean square less the squared mean, which cancels here
        "LayerNormalization", layer_norm, normal((70, 100), mean=50.0), [GAMMA, BETA], {"axis": 1}, least_psnr_of_ort=95
    ),
    Case("Relu", lambda x: np.maximum(x, 0), normal((9, 99))),
    Case("Clip", lambda x, low, high: np.clip(x, low, high), normal((9, 99)), [np.float32(-1.5), np.float32(6)]),
    Case("HardSigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1), normal((9, 99)), attrs={"alpha": 1 / 6, "beta": 0.5}),
    Case("Sigmoid", lambda x: 1 / (1 + np.exp(-x)), normal((9, 999))),
    Case("Erf", np.vectorize(erf), normal((9, 999))),
    Case("Tanh", np.tanh, normal((9, 999))),
    Case("Exp", np.exp, normal((9, 999))),
    Case("Softplus", lambda x: np.log1p(np.exp(x)), normal((9, 999))),
    Case("Elu", lambda x: np.where(x > 0, x, 0.7 * np.expm1(x)), normal((9, 999)), attrs={"alpha": 0.7}),
    Case("Neg", np.negative, normal((9, 99))),
    Case("Abs", np.abs, normal((9, 99))),
    Case("Max", np.maximum, normal((4, 50, 30), (50, 1))),
    Case("Min", np.minimum, normal((4, 50, 30)), [np.float32([1e-5])]),
    Case("Reciprocal", np.reciprocal, positive((40, 500), low=0.1)),
    Case("Log", np.log, positive((40, 500))),
    Case("Pow", np.power, normal((4, 50, 30)), [np.float32(3)]),
    Case("Pow", np.power, normal((4, 50, 30)), [np.float32(4)]),
    Case("LeakyRelu", lambda x: np.where(x < 0, 0.1 * x, x), normal((9, 99)), attrs={"alpha": 0.1}),
    Case(
        "PRelu", lambda x, s: np.where(x < 0, s * x, x), normal((9, 99)), [np.linspace(-0.5, 1, 99, dtype=np.float32)]
    ),
    Case("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), normal((9, 999))),
    Case("MatMul", np.matmul, normal((2, 8, 61, 32), (2, 8, 32, 61))),
    Case("MatMul", np.matmul, normal((7, 3, 96)), [np.random.default_rng(4).normal(size=(96, 10)).astype(np.float32)]),
    Case("Gemm", lambda a, b, c: a @ b.T + c, normal((7, 96), (10, 96)), [GAMMA[:10]], {"transB": 1}),
    Case("ReduceL2", lambda x: np.sqrt((x * x).sum(-1)), normal((90, 210)), attrs={"axes": [-1], "keepdims": 0}),
    Case("ReduceMax", lambda x: x.max(-1), normal((90, 210)), attrs={"axes": [-1], "keepdims": 0}),
    Case("GlobalAveragePool", lambda x: x.mean((2, 3), keepdims=True), normal((3, 90, 7, 5))),
    Case("AveragePool", lambda x: windows(x).mean((-1, -2)), normal((3, 9, 8, 7)), attrs=POOL),
    Case("MaxPool", lambda x: windows(x).max((-1, -2)), normal((3, 9, 8, 7)), attrs=POOL),
    Case("Transpose", lambda x: x.transpose(2, 0, 1), normal((3, 9, 8)), attrs={"perm": [2, 0, 1]}),
    Case("Concat", lambda a, b: np.concatenate([a, b], 1), normal((3, 9, 8), (3, 4, 8)), attrs={"axis": 1}),
]


def compiled(case: Case, inputs: dict[str, Array], constants: dict[str, Array], answer: Array) -> Graph:
    graph = float_graph(case.op, inputs, constants, case.attrs, answer.shape)
    tranges = {name: (float(array.min()), float(array.max())) for name, array in [*inputs.items(), ("y", answer)]}
    return check_limits(assign_fraction_bits(assign_ranges(check_limits(graph), tranges)))


def decode(graph: Graph, name: str, raw: Array) -> Array:
    kind = graph.tensors[name].type
    assert isinstance(kind, Fixed)
    return decode_raw(Decode("fx", kind.frac), raw)


def encoded(graph: Graph, inputs: dict[str, Array]) -> dict[str, Array]:
    kinds = {name: graph.tensors[name].type for name in inputs}
    return {name: encode_real(Decode("fx", kinds[name].frac), array) for name, array in inputs.items()}  # type: ignore[union-attr]


def psnr(found: Array, exact: Array) -> float:
    error = float(np.sqrt(np.mean((found - exact) ** 2)))
    return float("inf") if error == 0 else float(20 * np.log10(np.abs(exact).max() / error))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_float64_and_onnx_runtime(case: Case) -> None:
    drawn = case.inputs(np.random.default_rng(3))
    inputs = {f"x{i}": array for i, array in enumerate(drawn)}
    constants = {f"c{i}": np.asarray(array) for i, array in enumerate(case.constants)}
    answer = onnx_float_answer(case.op, inputs, constants, case.attrs)
    graph = compiled(case, inputs, constants, answer)
    raw = encoded(graph, inputs)
    found = decode(graph, "y", run_reference(graph, raw)["y"])
    seen = [decode(graph, name, each) for name, each in raw.items()]
    exact = case.function(*seen, *(np.asarray(c, np.float64) for c in case.constants))
    assert found.shape == answer.shape == exact.shape
    assert psnr(found, exact) >= LEAST_PSNR
    assert psnr(found, answer.astype(np.float64)) >= case.least_psnr_of_ort


@pytest.mark.parametrize(
    ("op", "shape", "attrs"),
    [
        ("Reshape", (4, 6), {}),
        ("Flatten", (2, 12), {"axis": 1}),
        ("Squeeze", (2, 3, 4), {}),
        ("Unsqueeze", (1, 2, 3, 4), {}),
        ("Identity", (2, 3, 4), {}),
        ("Dropout", (2, 3, 4), {}),
    ],
)
def test_moves_keep_values_and_format(op: str, shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    graph = assign_fraction_bits(
        assign_ranges(float_graph(op, {"x": x}, {}, attrs, shape), {"x": (0, 23), "y": (0, 23)})
    )
    assert graph.tensors["y"].type == graph.tensors["x"].type
    np.testing.assert_array_equal(run_reference(graph, {"x": x.astype(np.int32)})["y"], x.reshape(shape))


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (([1], [3], [0], [1]), np.s_[1:3]),
        (([0, -2], [9, 2**31], [0, 1], [2, 1]), np.s_[::2, -2:]),
        (([-1], [-(2**31)], [1], [-1]), np.s_[:, ::-1]),
    ],
)
def test_slice(numbers: Any, expected: Any) -> None:
    x = np.arange(40, dtype=np.int32).reshape(8, 5)
    attrs = dict(zip(("starts", "ends", "axes", "steps"), numbers))
    graph = float_graph("Slice", {"x": x}, {}, attrs, x[expected].shape)
    np.testing.assert_array_equal(run_reference(graph, {"x": x})["y"], x[expected])


def test_a_row_of_small_spread_beside_a_huge_one_keeps_its_precision() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 100)) * np.logspace(-3, 2, 64)[:, None]
    case = Case("LayerNormalization", layer_norm, normal((1,)), [GAMMA, BETA], {"axis": -1, "epsilon": 1e-12})
    inputs = {"x0": x.astype(np.float32)}
    graph = compiled(case, inputs, {"c0": GAMMA, "c1": BETA}, np.ones(x.shape) * 12)
    raw = encoded(graph, inputs)
    seen = decode(graph, "x0", raw["x0"])
    centred = seen - seen.mean(-1, keepdims=True)
    exact = centred / centred.std(-1, keepdims=True) * GAMMA + BETA
    error = np.abs(decode(graph, "y", run_reference(graph, raw)["y"]) - exact).max(-1)
    assert error[0] < 2.0**-10  # its values have some 13 bits of the tensor's 31
    assert error[20] < 2.0**-15
    assert error[-1] < 2.0**-20


def test_softmax_of_far_apart_values_neither_overflows_nor_loses_its_row() -> None:
    x = np.float32([[-1e3, 1e3, 0.0], [1e3, 1e3, 1e3]])
    case = Case("Softmax", softmax, normal((1,)), attrs={"axis": -1})
    graph = compiled(case, {"x0": x}, {}, np.float32([[0, 1]]))
    found = decode(graph, "y", run_reference(graph, encoded(graph, {"x0": x}))["y"])
    np.testing.assert_allclose(found, [[0, 1, 0], [1 / 3, 1 / 3, 1 / 3]], atol=2.0**-28)


def test_softmax_of_small_probabilities_uses_more_than_31_fraction_bits() -> None:
    x = np.random.default_rng(0).normal(0, 0.1, (4, 1024)).astype(np.float32)
    case = Case("Softmax", softmax, normal((1,)), attrs={"axis": -1})
    graph = compiled(case, {"x0": x}, {}, softmax(x))
    assert graph.tensors["y"].type.frac > 31  # type: ignore[union-attr]
    raw = encoded(graph, {"x0": x})
    assert psnr(decode(graph, "y", run_reference(graph, raw)["y"]), softmax(decode(graph, "x0", raw["x0"]))) > 150


def test_zero_divisor_saturates() -> None:
    case = Case("Div", np.divide, normal((1,)))
    inputs = {"x0": np.float32([1, -1]), "x1": np.float32([0, 0])}
    graph = compiled(case, inputs, {}, np.float32([-5, 5]))
    found = run_reference(graph, encoded(graph, inputs))["y"]
    np.testing.assert_array_equal(found, [2**31 - 1, -(2**31)])
