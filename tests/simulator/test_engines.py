"""The fast engine equals the literal one in every byte and every cycle class."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_programs import (
    all_reduces,
    alus,
    loads,
    luts,
    mac_locals,
    machine,
    macs,
    overlapped,
    program,
    reduces,
    single,
    stores,
)

from epu.simulator import lanes
from epu.simulator.instructions import Instruction
from epu.simulator.machine import Machine
from epu.simulator.program import Program
from epu.simulator.simulation import RunResult, Simulator

SEEDS = st.integers(0, 1000)
SHAPES = [(2, 2, 8), (4, 4, 16), (2, 4, 8)]
KINDS: dict[str, Any] = {
    "Alu": alus,
    "Lut": luts,
    "Reduce": reduces,
    "AllReduce": all_reduces,
    "Mac": macs,
    "MacLocal": mac_locals,
    "Load": loads,
    "Store": stores,
}
quick = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def run_both(found: Program) -> tuple[RunResult, RunResult]:
    """Run on both engines and compare all memory."""
    fast, step = Simulator(found, engine="fast"), Simulator(found, engine="step")
    results = fast.run({}), step.run({})
    memories: Any = fast._engine
    literal: Any = step._engine
    target = found.machine
    lrm = memories.memories.lrm.reshape(target.pes, -1)[:, : target.lrm_bytes]
    for pe in range(target.pes):
        assert lrm[pe].tobytes() == bytes(literal.memories.lrm[pe]), f"LRM of PE {pe}"
    assert memories.memories.ocm.tobytes() == bytes(literal.memories.memory["ocm"])
    assert memories.memories.ext.tobytes() == bytes(literal.memories.memory["ext"])
    return results


def check(target: Machine, body: list[Instruction], seed: int) -> None:
    with mock.patch.object(lanes, "BLOCK", (3, lanes.BLOCK)[seed % 2]):
        fast, step = run_both(program(target, body, seed))
    assert fast.cycles == step.cycles
    assert fast.kernels == step.kernels
    for count in (*fast.kernels, fast.cycles):
        classes = count.compute + count.mac + count.data_array + count.data_ocm + count.data_external
        assert count.total == classes - count.overlap
        assert count.overlap >= 0


@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(quick, max_examples=40)
@given(data=st.data(), seed=SEEDS)
def test_one_instruction(kind: str, shape: tuple[int, int, int], data: Any, seed: int) -> None:
    found = data.draw(KINDS[kind](*shape[:2]))
    check(machine(*shape), found if isinstance(found, list) else [found], seed)


@pytest.mark.parametrize("shape", SHAPES[2:], ids=str)
@settings(quick, max_examples=80)
@given(data=st.data(), seed=SEEDS)
def test_sequences(shape: tuple[int, int, int], data: Any, seed: int) -> None:
    parts = data.draw(st.lists(single(*shape[:2]), min_size=2, max_size=5))
    check(machine(*shape), [each for part in parts for each in part], seed)


@settings(quick, max_examples=80)
@given(data=st.data(), seed=SEEDS)
def test_transfers_in_flight(data: Any, seed: int) -> None:
    check(machine(2, 4, 8), data.draw(overlapped(2, 4)), seed)
