"""Every operator with a kernel: simulator, golden kernel and reference give the same bytes, on any machine."""

from __future__ import annotations

import pytest
from custom_case import custom_product
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_cases import LAYOUT
from node_cases import FAMILIES, cases
from one_node import MACHINES, assert_same_answers

from epu.lowering.table import EXPANDED, LOWERINGS

EVERY = {**FAMILIES, **LAYOUT, "QuadricCustomOp": (custom_product,)}
BUILDERS = [pytest.param(build, id=f"{op}-{k}") for op, found in EVERY.items() for k, build in enumerate(found)]


def test_every_lowering_has_cases() -> None:
    assert set(EVERY) == set(LOWERINGS) | EXPANDED


@pytest.mark.parametrize("rounding", ["exact", "ort"])
@pytest.mark.parametrize("build", BUILDERS)
def test_same_bytes(build, rounding) -> None:  # type: ignore[no-untyped-def]
    @settings(max_examples=6)
    @given(cases(build), st.lists(st.sampled_from(sorted(MACHINES)), min_size=2, max_size=2, unique=True))
    def check(case, names) -> None:  # type: ignore[no-untyped-def]
        assert_same_answers(*case, [MACHINES[name] for name in names], rounding)

    check()
