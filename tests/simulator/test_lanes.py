"""The Alu's carriers against unbounded Python integers, aimed at the edges where a carrier stops being exact."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import machine

from epu.simulator import fixed_point as fp
from epu.simulator import lanes
from epu.simulator.instructions import SIZES, Alu, Grid, Imm, Lrm
from epu.simulator.machine import ALU_COST
from epu.simulator.memory import Memories
from epu.simulator.step_arithmetic import MEANING, signed64, to_dtype

ONE = Grid((1,), (1,))
COUNT = 4
DTYPES = ["i8", "u8", "i32", "i64"]
EDGE = st.builds(
    lambda sign, bits, delta: sign * (1 << bits) + delta,
    st.sampled_from([1, -1]),
    st.integers(0, 63),
    st.integers(-3, 3),
)
VALUES = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-(1 << 54), 1 << 54),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(-300, 300),
    EDGE,
)
MULTIPLIERS = st.one_of(
    st.integers(-(1 << 33), 1 << 33), st.integers(-(1 << 25), 1 << 25), st.integers(-9, 9), EDGE, VALUES
)
SHIFTS = st.one_of(st.integers(-4, 12), st.integers(-66, 66))
SHIFT_OPERAND = {"shl": 1, "shr": 1, "rshr": 1, "mulr": 2, "mulrf": 2}
ARITY = {"mov": 1, "round24": 1, "clz": 1, "sel": 3, "mulr": 4, "mulrf": 4}


@st.composite
def operands(draw: Any, op: str) -> list[tuple[str, list[int]]]:
    """(dtype or "imm", values) of each operand."""
    found = []
    for place in range(ARITY.get(op, 2)):
        kind = draw(st.sampled_from([*DTYPES, "i32", "imm", "imm"] if place else [*DTYPES, "i32", "i64"]))
        source = SHIFTS if SHIFT_OPERAND.get(op) == place else MULTIPLIERS if place == 1 else VALUES
        values = draw(st.lists(source, min_size=COUNT, max_size=COUNT))
        values = [fp.wrap_int(values[0])] * COUNT if kind == "imm" else [to_dtype(each, kind, True) for each in values]
        found.append((kind, values))
    return found if op not in ("mulr", "mulrf") or draw(st.booleans()) else found[:3]


def run_alu(op: str, drawn: list[tuple[str, list[int]]], dtype: str, saturate: bool) -> list[int]:
    """Lay the operands out, run twice on memory filled after planning, read the result."""
    memories = Memories(machine(1, 1, 8), 0)
    placed: list[Any] = [
        Imm(values[0]) if kind == "imm" else Lrm(place * 32, kind, (SIZES[kind],))
        for place, (kind, values) in enumerate(drawn, 1)
    ]
    a, b, c, d = placed + [None] * (4 - len(placed))
    dst = Lrm(0, dtype, (SIZES[dtype],))
    memories.lrm.fill(1)
    with np.errstate(all="ignore"):
        run = Alu(op, ONE, (COUNT,), dst, a, b, c, d, saturate).plan(memories)
        for operand, (_, values) in zip(placed, drawn):
            if isinstance(operand, Lrm):
                raw = np.array(values, np.int64).astype(fp.NUMPY_DTYPE[operand.dtype])
                memories.lrm_view(ONE, (COUNT,), operand)[...] = raw
        run()
        run()  # a carrier that did not fit is replaced: the next run must agree
    return memories.lrm_view(ONE, (COUNT,), dst).reshape(-1).tolist()


def wanted(op: str, drawn: list[tuple[str, list[int]]], dtype: str, saturate: bool) -> list[int]:
    """The same in unbounded integers."""
    columns = [values for _, values in drawn] + [[0] * COUNT] * (4 - len(drawn))
    return [to_dtype(signed64(MEANING[op](*lane)), dtype, saturate) for lane in zip(*columns)]


@pytest.mark.parametrize("op", sorted(ALU_COST))
@settings(max_examples=120, derandomize=True, deadline=None)
@given(data=st.data(), block=st.sampled_from([1, 3, 1 << 14]))
def test_every_carrier_is_exact(op: str, block: int, data: Any) -> None:
    drawn = data.draw(operands(op))
    dtype, saturate = data.draw(st.sampled_from(DTYPES)), data.draw(st.booleans())
    with mock.patch.object(lanes, "BLOCK", block):
        assert run_alu(op, drawn, dtype, saturate) == wanted(op, drawn, dtype, saturate)


EDGES: dict[str, tuple[str, list[int], int, int, int]] = {
    # op, values of a, b, c, d
    "two bits beyond float64": ("mulr", [8 * q + 5 for q in (1 << 51, (1 << 51) + 2, -(1 << 51), 3)], 1, 3, 0),
    "left shift and addend beyond float64": ("mulr", [(1 << 52) - 1, 1 << 51, -(1 << 52) + 1, 9], 1, -3, 1),
    "product wraps at 64 bits": ("mulr", [1 << 41, (1 << 41) + 1, -(1 << 42), 5], (1 << 24) - 1, 14, 0),
    "rounded product wraps at 64 bits": ("mulrf", [1 << 41, (1 << 41) + 1, -(1 << 42), 5], (1 << 24) - 1, 14, 0),
    "multiplier beyond float32": ("mulrf", [1, 3, -1, 12345], (1 << 24) + 1, 1, 0),
    "result leaves 32 bits": ("mulr", [1 << 30, -(1 << 30), 1 << 20, 7], (1 << 22) - 1, 10, 0),
    "addend leaves 32 bits": ("mulr", [(1 << 31) - 1, -(1 << 31), 5, 0], 1, 0, (1 << 31) - 1),
}


@pytest.mark.parametrize("case", EDGES)
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("dtype", ["i8", "i32", "i64"])
def test_edges_of_products(case: str, stored: bool, dtype: str) -> None:
    op, a, b, c, d = EDGES[case]
    kinds = (
        "i64" if max(map(abs, a)) > 1 << 31 else "i32",
        "i32" if stored else "imm",
        "i8" if stored else "imm",
        "imm",
    )
    drawn = list(zip(kinds, (a, [b] * COUNT, [c] * COUNT, [d] * COUNT)))
    for saturate in (False, True):
        assert run_alu(op, drawn, dtype, saturate) == wanted(op, drawn, dtype, saturate)


@pytest.mark.parametrize("op", ["mulr", "mulrf"])
@pytest.mark.parametrize("shared", [(4, 0), (0, 4), (0, 0)])
def test_multipliers_shared_along_a_loop(op: str, shared: tuple[int, int]) -> None:
    """Per-channel multipliers and shifts have stride 0 along the other loop."""
    memories = Memories(machine(1, 1, 8), 0)
    rng = np.random.default_rng(3)
    operands = Lrm(0, "i32", (16, 4)), Lrm(64, "i32", shared), Lrm(96, "i32", shared)
    dst = Lrm(128, "i8", (4, 1))
    values = memories.lrm_view(ONE, (4, 4), operands[0])
    values[...] = rng.integers(-(1 << 20), 1 << 20, values.shape)
    memories.lrm_view(ONE, (4,), Lrm(64, "i32", (4,)))[...] = rng.integers(1 << 23, 1 << 24, 4)
    memories.lrm_view(ONE, (4,), Lrm(96, "i32", (4,)))[...] = rng.integers(36, 40, 4)
    Alu(op, ONE, (4, 4), dst, *operands, Imm(-3), True).plan(memories)()
    columns = [memories.lrm_view(ONE, (4, 4), each).reshape(-1).tolist() for each in operands]
    want = [to_dtype(MEANING[op](x, b, c, -3), "i8", True) for x, b, c in zip(*columns)]
    assert memories.lrm_view(ONE, (4, 4), dst).reshape(-1).tolist() == want
