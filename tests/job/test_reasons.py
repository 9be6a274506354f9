"""Reasons of mismatches: what is right is explained, and no reason excuses a wrong rounding, constant or weight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reason_cases import (
    Case,
    Rounding,
    half_even,
    half_up,
    off_by_one,
    ort_of,
    reasons_of,
    slightly_scaled,
    truncated,
)
from reason_models import CASES

from epu.reasons_names import comment

FAULTS: list[Rounding] = [half_up, truncated, off_by_one, slightly_scaled]
FORMS = [(name, qdq) for name in CASES for qdq in (False, True)]
NO_TIES = ("Add, odd scales", "MatMul, odd scales", "Conv")  # half up is half even there
WRONG = [(*form, fault) for form in FORMS for fault in FAULTS if fault is not half_up or form[0] not in NO_TIES]


def unexplained(reasons: dict[str, int]) -> int:
    return reasons.get("unexplained", 0)


@pytest.mark.parametrize(("name", "qdq"), FORMS)
def test_the_exact_result_rounded_half_to_even_is_always_explained(name: str, qdq: bool) -> None:
    case = CASES[name](qdq=qdq)
    ort, codes = ort_of(case), case.codes(half_even)
    reasons = reasons_of(case, codes, ort)
    assert unexplained(reasons) == 0, reasons
    assert sum(reasons.values()) == np.count_nonzero(codes != ort["y"])
    assert set(reasons) <= {"tie", "ORT float32 rounding"}


@pytest.mark.parametrize(("name", "qdq", "fault"), WRONG)
def test_a_wrong_rounding_is_explained_nowhere(name: str, qdq: bool, fault: Rounding) -> None:
    case = CASES[name](qdq=qdq)
    assert_red(case, case.codes(fault))


@pytest.mark.parametrize(("name", "qdq"), FORMS)
def test_a_wrong_zero_point_is_explained_nowhere(name: str, qdq: bool) -> None:
    case = CASES[name](qdq=qdq)
    assert_red(case, replace(case, zero=case.zero + 1).codes(half_even))


@pytest.mark.parametrize(("name", "qdq"), [form for form in FORMS if form[0].startswith(("MatMul", "Conv"))])
def test_one_wrong_weight_is_seen_in_all_that_it_changes(name: str, qdq: bool) -> None:
    case = CASES[name](qdq=qdq)
    weights = case.constants["b"].copy()
    weights.flat[7] ^= 64
    assert_red(case, case.codes(half_even, {**case.constants, "b": weights}))


@pytest.mark.parametrize(("name", "qdq"), FORMS)
def test_one_flipped_element_is_the_only_unexplained_one(name: str, qdq: bool) -> None:
    case = CASES[name](qdq=qdq)
    ort, codes = ort_of(case), case.codes(half_even)
    index = np.argmax((np.abs(codes.astype(int)) < 100) & (codes == ort["y"]))
    codes.flat[index] += 1
    assert unexplained(reasons_of(case, codes, ort)) == 1


def assert_red(case: Case, codes: Any) -> None:
    """Where a fault changes a code, and not by luck into ORT's, it is unexplained; nothing else is."""
    ort, right = ort_of(case), case.codes(half_even)
    changed = (codes != right) & (codes != ort["y"])
    assert changed.any(), "the fault must be seen"
    assert unexplained(reasons_of(case, codes, ort)) == np.count_nonzero(changed)


def test_ties_that_float32_breaks_are_named_so() -> None:
    """The sum of two equal odd scales is a tie for every second pair of codes; float32 takes either side."""
    case = CASES["Add, one odd scale"](qdq=True)
    ort, codes = ort_of(case), case.codes(half_even)
    reasons = reasons_of(case, codes, ort)
    assert reasons["tie"] > 0
    assert reasons == {"tie": np.count_nonzero(codes != ort["y"])}


def test_the_comment_counts_and_names() -> None:
    assert comment({"tie": 2, "ORT float32 rounding": 1}) == "tie 2, ORT float32 rounding 1"
    assert comment({}) == "-"
