"""The instructions of three tiny kernels, as text. Rewrite with ``pytest tests/kernels --update-listings`` and read the diff."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from one_node import Case, machine

from epu.compiler import compile_graph
from epu.graph import Float, Graph, Quantized, Tensor
from epu.simulator.program import parse_listing

EXPECTED = Path(__file__).resolve().parent / "expected"


def quantized(scale: float) -> Quantized:
    return Quantized("int8", (scale,), (0,))


def operand(c: Case, name: str, shape: tuple[int, ...], scale: float, constant: bool = False) -> None:
    values = np.arange(np.prod(shape), dtype=np.int8).reshape(shape)
    c.add(name, shape, quantized(scale), values, constant)


def matmul() -> Graph:
    """Rows over rows, columns over columns, the depth round a ring; a bias from the zero point."""
    c = Case(0)
    c.add("a", (4, 16), Quantized("int8", (0.05,), (-3,)), np.zeros((4, 16), np.int8), False)
    operand(c, "b", (16, 8), 0.01, constant=True)
    c.result((4, 8), quantized(0.125))
    return c.graph("QLinearMatMul")


def add() -> Graph:
    """A row broadcast over four."""
    c = Case(0)
    operand(c, "a", (4, 32), 0.05)
    operand(c, "b", (32,), 0.0125)
    c.result((4, 32), quantized(0.0625))
    return c.graph("QLinearAdd")


def softmax() -> Graph:
    """One row; the shares are tapped, the dequantised tensor is derived."""
    c = Case(0)
    operand(c, "x", (1, 16), 0.0625)
    for name in ("real", "shares"):
        c.tensors[name] = Tensor(name, (1, 16), Float())
    c.result((1, 16), quantized(1 / 128))
    return c.graph("SoftmaxInt8", axis=-1, probabilities="shares", dequantized="real")


@pytest.mark.parametrize("build", [matmul, add, softmax])
def test_listing(build, update_listings: bool) -> None:  # type: ignore[no-untyped-def]
    path = EXPECTED / f"{build.__name__}.txt"
    program = compile_graph(build(), machine(), name=build.__name__).program
    found = program.listing() + "\n"
    if update_listings:
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")
    assert parse_listing(found) == program.code
