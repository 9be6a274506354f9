"""Every quantised operator as a ``Case``: in the form of one ONNX node, and between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper
from reason_cases import Case, f32, fractions

Array = NDArray[Any]
Codes = dict[str, Array]
Scales = tuple[float, float, float]

CONTRIB = "com.microsoft"


def drawn(seed: int, *shape: int, dtype: str = "int8") -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def parameters(scales: Scales, zero: tuple[int, int, int] = (0, 0, 0)) -> dict[str, Array]:
    names = ("a", "b", "y")
    found: dict[str, Array] = {f"{name}_s": np.array(scale, np.float32) for name, scale in zip(names, scales)}
    return {**found, **{f"{name}_z": np.array(point, np.int8) for name, point in zip(names, zero)}}


def binary(op: str, scales: Scales, seed: int = 0, zeros: tuple[int, int, int] = (3, -5, 8), qdq: bool = False) -> Case:
    """Add or Mul of two tensors."""
    inputs = {"a": drawn(seed, 40, 25), "b": drawn(seed + 1, 40, 25)}
    sa, sb, sy = map(f32, scales)
    za, zb, zy = zeros

    def exact(codes: Codes) -> Any:
        a, b = (fractions(codes[name].astype(int) - zero) for name, zero in (("a", za), ("b", zb)))
        if op == "Mul":
            return a * b * fractions(f32(f32(sa * sb) / sy))
        return a * fractions(f32(sa / sy)) + b * fractions(f32(sb / sy))

    nodes = _qdq(op, ["a", "b"]) if qdq else _contrib(f"QLinear{op}", ["a", "b"])
    known = {"a": (float(sa), za), "b": (float(sb), zb)}
    return Case(nodes, inputs, parameters(scales, zeros), exact, float(sy), zy, known)


def matmul(scales: Scales, seed: int = 0, zeros: tuple[int, int, int] = (4, 0, -2), qdq: bool = False) -> Case:
    """A product with a constant right side."""
    inputs, weights = {"a": drawn(seed, 40, 60)}, drawn(seed + 1, 60, 50)
    sa, sb, sy = map(f32, scales)

    def exact(codes: Codes) -> Any:
        total = (codes["a"].astype(int) - zeros[0]) @ (codes["b"].astype(int) - zeros[1])
        return fractions(total) * fractions(f32(f32(sa * sb) / sy))

    names = ["a", "a_s", "a_z", "b", "b_s", "b_z", "y_s", "y_z"]
    one = [helper.make_node("QLinearMatMul", names, ["y"], "n")]
    constants = {**parameters(scales, zeros), "b": weights}
    known = {"a": (float(sa), zeros[0])}
    return Case(_qdq("MatMul", ["a", "b"]) if qdq else one, inputs, constants, exact, float(sy), zeros[2], known)


def conv(scales: Scales, seed: int = 0, zeros: tuple[int, int, int] = (4, 0, -2), qdq: bool = False) -> Case:
    """One padded 3x3 convolution with bias, a scale per filter."""
    inputs = {"a": drawn(seed, 1, 4, 9, 9)}
    weights, bias = drawn(seed + 1, 6, 4, 3, 3), np.arange(-300, 300, 100, dtype=np.int32)
    sa, sb, sy = map(f32, scales)
    per_filter = (sb * np.linspace(0.5, 1.5, 6)).astype(np.float32)

    def exact(codes: Codes) -> Any:
        x = np.pad(codes["a"].astype(int) - zeros[0], ((0, 0), (0, 0), (1, 1), (1, 1)))
        seen: Array = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))  # type: ignore[call-overload]
        total = np.einsum("nchwij,fcij->nfhw", seen, codes["b"].astype(int)) + codes["c"].reshape(1, -1, 1, 1)
        factors = [f32(f32(sa * each) / sy) for each in per_filter]
        return fractions(total) * fractions(factors).reshape(1, -1, 1, 1)

    constants = {**parameters(scales, zeros), "b": weights, "c": bias, "b_s": per_filter, "b_z": np.zeros(6, np.int8)}
    names = ["a", "a_s", "a_z", "b", "b_s", "b_z", "y_s", "y_z", "c"]
    nodes = [helper.make_node("QLinearConv", names, ["y"], "n", pads=[1, 1, 1, 1])]
    if qdq:
        constants |= {"c_s": np.asarray(sa * per_filter, np.float32), "c_z": np.zeros(6, np.int32)}
        nodes = _qdq("Conv", ["a", "b", "c"], {"b": 0, "c": 0}, pads=[1, 1, 1, 1])
    return Case(nodes, inputs, constants, exact, float(sy), zeros[2], {"a": (float(sa), zeros[0])})


def average(scales: Scales, seed: int = 0, zeros: tuple[int, int, int] = (4, 0, -2), qdq: bool = False) -> Case:
    """2x2 windows: every fourth mean is a tie where the scales are equal."""
    inputs = {"a": drawn(seed, 1, 5, 20, 20)}
    sa, _, sy = map(f32, scales)

    def exact(codes: Codes) -> Any:
        total = (codes["a"].astype(int) - zeros[0]).reshape(1, 5, 10, 2, 10, 2).sum(axis=(3, 5))
        return fractions(total) * fractions(f32(sa / f32(sy * f32(4))))

    attributes: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    names = ["a", "a_s", "a_z", "y_s", "y_z"]
    one = [helper.make_node("QLinearAveragePool", names, ["y"], "n", domain=CONTRIB, **attributes)]
    nodes = _qdq("AveragePool", ["a"], **attributes) if qdq else one
    known = {"a": (float(sa), zeros[0])}
    return Case(nodes, inputs, parameters(scales, zeros), exact, float(sy), zeros[2], known)


def leaky(scales: Scales, seed: int = 0, zeros: tuple[int, int, int] = (4, 0, -2), qdq: bool = False) -> Case:
    """A table: the exact function of each code."""
    inputs = {"a": np.arange(-128, 128).astype(np.int8).reshape(16, 16)}
    sa, _, sy = map(f32, scales)

    def exact(codes: Codes) -> Any:
        x = fractions(codes["a"].astype(int) - zeros[0]) * fractions(sa) / fractions(sy)
        return np.where(x >= 0, x, x * fractions(f32(0.25)))

    names = ["a", "a_s", "a_z", "y_s", "y_z"]
    one = [helper.make_node("QLinearLeakyRelu", names, ["y"], "n", domain=CONTRIB, alpha=0.25)]
    nodes = _qdq("LeakyRelu", ["a"], alpha=0.25) if qdq else one
    known = {"a": (float(sa), zeros[0])}
    return Case(nodes, inputs, parameters(scales, zeros), exact, float(sy), zeros[2], known)


def _contrib(op: str, names: list[str]) -> list[Any]:
    operands = [f"{name}{suffix}" for name in names for suffix in ("", "_s", "_z")]
    return [helper.make_node(op, [*operands, "y_s", "y_z"], ["y"], "n", domain=CONTRIB)]


def _qdq(op: str, names: list[str], axes: dict[str, int] | None = None, **attributes: Any) -> list[Any]:
    nodes = [
        helper.make_node("DequantizeLinear", [n, f"{n}_s", f"{n}_z"], [f"{n}_d"], f"dq_{n}", **_axis(axes, n))
        for n in names
    ]
    nodes.append(helper.make_node(op, [f"{name}_d" for name in names], ["r"], "op", **attributes))
    return [*nodes, helper.make_node("QuantizeLinear", ["r", "y_s", "y_z"], ["y"], "q")]


def _axis(axes: dict[str, int] | None, name: str) -> dict[str, Any]:
    return {"axis": axes[name]} if axes and name in axes else {}


EQUAL: Scales = (0.03125, 0.03125, 0.0625)  # sums of odd codes are ties
ODD: Scales = (0.0371, 0.0517, 0.0833)
SMALL: Scales = (0.0371, 0.0117, 0.5)
CASES = {
    "Add": lambda **given: binary("Add", given.pop("scales", EQUAL), **given),
    "Add, odd scales": lambda **given: binary("Add", given.pop("scales", ODD), **given),
    "Add, one odd scale": lambda **given: binary("Add", given.pop("scales", (0.0371, 0.0371, 0.0742)), **given),
    "Mul": lambda **given: binary("Mul", given.pop("scales", (0.125, 0.125, 2.0)), **given),
    "MatMul": lambda **given: matmul(given.pop("scales", (0.03125, 0.0625, 1.0)), **given),
    "MatMul, odd scales": lambda **given: matmul(given.pop("scales", SMALL), **given),
    "Conv": lambda **given: conv(given.pop("scales", SMALL), **given),
    "AveragePool": lambda **given: average(given.pop("scales", (0.0371, 1.0, 0.0371)), **given),
    "LeakyRelu": lambda **given: leaky(given.pop("scales", (0.0625, 1.0, 0.0625)), **given),
}
