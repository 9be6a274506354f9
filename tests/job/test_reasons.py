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

from epu.graph import Fixed
from epu.metrics import measure
from epu.reasons_codes import Elements, explain_codes
from epu.reasons_contrib import Coded
from epu.reasons_names import Reason, comment
from epu.reasons_reals import Judgement, explain_fixed

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


def test_codes_beyond_the_range_are_saturated() -> None:
    """An int8 chain of which ORT shows the float."""
    held, shown = np.array([127.0, -128.0, 126.0]), np.array([300.0, -129.0, 300.0])
    at = Elements(np.array([[0], [1], [2]]), (3,), held, shown, (-128, 127))
    found = explain_codes(Coded(shown, np.ones(1, np.float32), np.zeros(1)), at, np.zeros(3))
    assert found.tolist() == [Reason.SATURATION, Reason.SATURATION, Reason.UNEXPLAINED]


def test_the_limit_of_a_word_is_a_clipped_range_only_where_the_exact_value_lies_beyond() -> None:
    ort = np.array([10.0, 10.0, 7.9], np.float32)
    held = np.array([2**31 - 1, 2**31 - 2**8, 2**31 - 1], np.int32)
    exact = ort.astype(np.float64)
    deviation = measure(ort, held, Fixed(28))
    found = explain_fixed(deviation, Judgement(exact, exact, np.array(2.0**-29)), np.ones(3, np.bool_))
    assert found.tolist() == [Reason.CLIPPED, Reason.UNEXPLAINED, Reason.UNEXPLAINED]


def test_a_bound_is_an_edge() -> None:
    """One unit beyond the bound is unexplained; within it, it is a table's error where ORT is nearer."""
    ort, exact = np.zeros(3, np.float32), np.zeros(3)
    deviation = measure(ort, np.array([8, 9, -9], np.int32), Fixed(28))
    judgement = Judgement(exact, np.ones(3) * 2.0**-40, np.array(8 * 2.0**-28), table=True)
    found = explain_fixed(deviation, judgement, np.ones(3, np.bool_))
    assert found.tolist() == [Reason.UNEXPLAINED] * 3  # ORT is further off than float32 allows
    near = Judgement(exact, np.array([0.0, 0.0, 1.0]), np.array(8 * 2.0**-28), table=True)
    ends = explain_fixed(deviation, near, np.array([True, True, False]))
    assert ends.tolist() == [Reason.TABLE, Reason.UNEXPLAINED]


def test_what_repeats_float32_may_share_its_error_but_have_none_of_its_own() -> None:
    exact, step = np.ones(3), 2.0**-27
    ort = exact + 1e-5  # float32 with cancellation
    deviation = measure(ort.astype(np.float32), np.rint((ort + [0.0, 4 * step, 40 * step]) / step), Fixed(27))
    judgement = Judgement(exact, exact, np.array(step), repeats=np.array(5 * step))
    found = explain_fixed(deviation, judgement, np.ones(3, np.bool_))
    assert list(found) == [Reason.FLOAT32, Reason.FLOAT32, Reason.UNEXPLAINED]
    assert (
        list(explain_fixed(deviation, replace(judgement, repeats=None), np.ones(3, np.bool_)))
        == [Reason.UNEXPLAINED] * 3
    )


def test_the_comment_counts_and_names() -> None:
    assert comment({"tie": 2, "ORT float32 rounding": 1}) == "tie 2, ORT float32 rounding 1"
    assert comment({}) == "-"
