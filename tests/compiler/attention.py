"""A small graph of many kernels: one attention head with a residual and a layer norm, as quantised models have it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.fixed_formats import TRANGES
from epu.graph import Float, Graph, Node, Quantized, Tensor

Array = NDArray[Any]

NODES = (
    "QLinearMatMul x wq -> q",
    "QLinearMatMul x wk -> k",
    "QLinearMatMul x wv -> v",
    "Transpose k -> kt",
    "QLinearMatMul q kt -> scores",
    "DequantizeLinear scores -> real_scores",
    "Softmax real_scores -> shares",
    "QuantizeLinear shares -> weights",
    "QLinearMatMul weights v -> context",
    "QLinearAdd context x -> sum",
    "DequantizeLinear sum -> real_sum",
    "LayerNormalization real_sum gamma beta -> normal",
    "QuantizeLinear normal -> rounded",
    "Reshape rounded -> y",
)
REALS = ("real_scores", "shares", "real_sum", "normal")
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Transpose": {"perm": (1, 0)},
    "Softmax": {"axis": -1},
    "LayerNormalization": {"axis": -1, "epsilon": 1e-5},
}


def attention(rows: int = 6, width: int = 8, outputs: tuple[str, ...] = ("y",)) -> Graph:
    """x [rows, width] int8 -> y [rows * width] int8."""
    rng = np.random.default_rng(3)
    square, turned = {"scores", "real_scores", "shares", "weights"}, {"kt"}
    nodes = [node(line) for line in NODES]
    tensors: dict[str, Tensor] = {}
    for name in ("x", *(each.outputs[0] for each in nodes)):
        shape = (rows, rows) if name in square else (width, rows) if name in turned else (rows, width)
        scale = {"weights": 1 / 127, "scores": 0.05, "kt": 0.031, "k": 0.031, "y": 0.03, "rounded": 0.03}.get(
            name, 0.04
        )
        kind = Float() if name in REALS else Quantized("int8", (float(np.float32(scale)),), (0,))
        tensors[name] = Tensor(name, shape if name != "y" else (rows * width,), kind)
    for name in ("wq", "wk", "wv"):
        weights = rng.integers(-128, 127, (width, width), np.int8, endpoint=True)
        tensors[name] = Tensor(name, weights.shape, Quantized("int8", (0.0046,), (0,)), weights)
    for name in ("gamma", "beta"):
        tensors[name] = Tensor(name, (width,), Float(), rng.uniform(-1, 1, width).astype(np.float32))
    tensors["normal"].range, tensors["normal"].range_source = (-4.0, 4.0), TRANGES
    return Graph("attention", nodes, tensors, ["x"], list(outputs))


def node(line: str) -> Node:
    """``op inputs -> output``; the node is named after its output."""
    left, output = line.split(" -> ")
    op, *inputs = left.split()
    return Node(f"block/{output}", op, inputs, [output], dict(ATTRIBUTES.get(op, {})))


def sample(rows: int = 6, width: int = 8, seed: int = 5) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).integers(-128, 127, (rows, width), np.int8, endpoint=True)}
