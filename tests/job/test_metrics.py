"""Rows of the validation table against values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epu.graph import Fixed, Integer, Quantized
from epu.metrics import (
    END_TO_END,
    ISOLATED,
    SEGMENT,
    Tolerance,
    compare,
    dtype_name,
    float32_unit,
    measure,
    passes,
    within_float32_rounding,
)

INT8 = Quantized("int8", (0.5,), (0,))

SEED_KEYS = [
    "dtype",
    "total",
    "Bitwise Mismatches",
    "Mismatch %",
    "RMSE",
    "PSNR (dB)",
    "Max Abs Err",
    "Max Abs Err Loc",
    "ORT[loc]",
    "ISS[loc]",
    "Max Abs Err / ε",
    "Mismatches Above Tol",
    "rtol",
    "atol",
    "Comment",
]


def test_int8_row_by_hand() -> None:
    ort = np.array([[10, -20], [30, 40]], np.int8)
    iss = np.array([[10, -23], [30, 44]], np.int8)
    row = compare(ort, iss, INT8)
    assert list(row) == SEED_KEYS
    assert row["dtype"] == "int8"
    assert row["total"] == 4
    assert row["Bitwise Mismatches"] == 2
    assert row["Mismatch %"] == 50.0
    assert row["RMSE"] == 2.5  # sqrt((9 + 16) / 4)
    assert row["PSNR (dB)"] == pytest.approx(20 * math.log10(40 / 2.5))
    assert (row["Max Abs Err"], row["Max Abs Err Loc"]) == (4.0, (1, 1))
    assert (row["ORT[loc]"], row["ISS[loc]"], row["Max Abs Err / ε"]) == (40, 44, 4.0)
    assert row["Mismatches Above Tol"] == 0  # rtol * max|ORT| = 4 is not exceeded by 4
    assert row["Comment"] == ""


def test_relative_tolerance_uses_the_peak_only_when_atol_is_minus_one() -> None:
    ort, iss = np.array([1, 100], np.int8), np.array([3, 100], np.int8)
    assert compare(ort, iss, INT8)["Mismatches Above Tol"] == 0
    assert compare(ort, iss, INT8, Tolerance(0.1, 0))["Mismatches Above Tol"] == 1
    assert compare(ort, iss, INT8, Tolerance(0.1, 1.9))["Mismatches Above Tol"] == 0


def test_int8_extremes_do_not_wrap() -> None:
    row = compare(np.array([127], np.int8), np.array([-128], np.int8), INT8)
    assert row["Max Abs Err"] == 255.0


def test_fixed_point_is_measured_in_its_own_lsb() -> None:
    ort = np.array([0.5, 0.25], np.float32)
    iss = np.array([512, 259], np.int32)
    row = compare(ort, iss, Fixed(10))
    assert row["dtype"] == "custom[qfp.10]32"
    assert row["Max Abs Err / ε"] == 3.0
    assert row["Max Abs Err"] == 3 / 1024
    assert row["ORT[loc]"] == 0.25
    assert row["ISS[loc]"] == 259 / 1024


def test_fixed_point_grid_rounds_half_to_even() -> None:
    ort = np.array([0.5, 1.5, 2.5], np.float32)
    assert compare(ort, np.array([0, 2, 2], np.int32), Fixed(0))["Bitwise Mismatches"] == 0
    assert compare(ort, np.array([1, 2, 3], np.int32), Fixed(0))["Bitwise Mismatches"] == 2


def test_a_clipped_range_is_an_error() -> None:
    ort = np.array([10.0, 1.0], np.float32)
    row = compare(ort, np.array([2**31 - 1, 1 << 28], np.int32), Fixed(28))
    assert row["Bitwise Mismatches"] == 1
    assert row["Max Abs Err"] == pytest.approx(2.0, abs=1e-6)


def test_what_float32_rounding_alone_can_do() -> None:
    ort = np.array([np.float32(1.1)])
    near = np.array([round(1.1 * 2**29)], np.int32)
    assert within_float32_rounding(measure(ort, near, Fixed(29))).all()
    assert not within_float32_rounding(measure(ort, near + 70, Fixed(29))).any()


def test_float_of_ort_against_quantised_iss_uses_the_quantisation_step() -> None:
    kind = Quantized("uint8", (0.5,), (3,))
    row = compare(np.array([0.0, 1.0, 2.0], np.float32), np.array([3, 5, 8], np.uint8), kind)
    assert row["Bitwise Mismatches"] == 1
    assert row["Max Abs Err"] == 0.5
    assert row["ORT[loc]"] == 2.0
    assert row["ISS[loc]"] == 2.5


def test_per_channel_steps_follow_the_axis() -> None:
    kind = Quantized("int8", (1.0, 0.25), (0, 0), axis=1)
    row = compare(np.array([[2.0, 0.5]], np.float32), np.array([[2, 2]], np.int8), kind)
    assert row["Bitwise Mismatches"] == 0


@pytest.mark.parametrize(
    ("ort", "iss", "psnr"),
    [([0.0], [0], math.inf), ([0.0], [1], -math.inf), ([math.inf], [7], -math.inf), ([math.nan], [0], -math.inf)],
)
def test_defined_at_zero_infinity_and_nan(ort: list[float], iss: list[int], psnr: float) -> None:
    row = compare(np.array(ort, np.float32), np.array(iss, np.int32), Fixed(4))
    assert row["PSNR (dB)"] == psnr
    assert not math.isnan(row["RMSE"])
    assert not math.isnan(row["Max Abs Err"])


def test_infinity_counts_as_mismatch_above_tolerance() -> None:
    row = compare(np.array([math.inf, 1.0], np.float32), np.array([0, 16], np.int32), Fixed(4))
    assert row["Bitwise Mismatches"] == 1
    assert row["Mismatches Above Tol"] == 1


def test_empty_and_scalar_tensors() -> None:
    empty = compare(np.zeros((0, 3), np.int8), np.zeros((0, 3), np.int8), INT8)
    assert (empty["total"], empty["RMSE"], empty["PSNR (dB)"], empty["ORT[loc]"]) == (0, 0.0, math.inf, None)
    scalar = compare(np.array(3, np.int64), np.array(4, np.int64), Integer("int64"))
    assert scalar["Max Abs Err Loc"] == ()
    assert scalar["Max Abs Err"] == 1.0


def test_type_names() -> None:
    assert [dtype_name(t) for t in (INT8, Fixed(27), Integer("int64"))] == ["int8", "custom[qfp.27]32", "int64"]
    wide = compare(np.array([1.0], np.float32), np.array([1 << 40], np.int64), Fixed(40))
    assert (wide["dtype"], wide["Bitwise Mismatches"]) == ("custom[qfp.40]64", 0)


def test_gates() -> None:
    one = compare(np.array([1], np.int8), np.array([2], np.int8), INT8)
    two = compare(np.array([1], np.int8), np.array([3], np.int8), INT8)
    assert passes(one, INT8, ISOLATED, 0.0)
    assert passes(one, INT8, SEGMENT, 0.0)
    assert not passes(two, INT8, ISOLATED, 0.0)
    assert not passes(one, INT8, END_TO_END, 0.0)  # 1 is above a tenth of 1
    assert not passes(one, Integer("int64"), ISOLATED, 0.0)
    assert passes(one, Fixed(24), SEGMENT, 120.0)
    assert not passes(one, Fixed(24), SEGMENT, 119.9)


@given(st.lists(st.tuples(st.integers(-128, 127), st.integers(-128, 127)), min_size=1, max_size=30), st.integers(0, 9))
def test_every_number_against_plain_loops(pairs: list[tuple[int, int]], tenths: int) -> None:
    row = compare(*np.array(pairs, np.int8).T, INT8, Tolerance(tenths / 10, -1))
    errors = [abs(a - b) for a, b in pairs]
    peak = max(abs(a) for a, _ in pairs)
    assert row["Bitwise Mismatches"] == sum(error > 0 for error in errors)
    assert row["Max Abs Err"] == max(errors)
    assert errors[row["Max Abs Err Loc"][0]] == max(errors)
    assert row["RMSE"] == pytest.approx(math.sqrt(math.fsum(error**2 for error in errors) / len(errors)))
    assert row["Mismatches Above Tol"] == sum(error > tenths / 10 * peak for error in errors)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-40, 40), st.integers(0, 40))
def test_a_fixed_point_value_is_its_own_reference_unless_float32_cannot_hold_it(raw: int, off: int, frac: int) -> None:
    ort = np.array([raw / 2**frac], np.float64)
    other = min(max(raw + off, -(2**31)), 2**31 - 1)
    row = compare(ort, np.array([other], np.int32), Fixed(frac))
    assert row["Max Abs Err / ε"] == abs(other - raw)
    assert row["Max Abs Err"] == abs(other - raw) / 2**frac


def test_a_float32_unit_exists_for_every_value() -> None:
    """A mask is the largest float32, above which there is no next one."""
    largest = np.finfo(np.float32).max
    values = np.array([0.0, 1.0, -1.5, -largest, largest], np.float32)
    assert float32_unit(values).tolist() == [2.0**-149, 2.0**-23, 2.0**-23, 2.0**104, 2.0**104]
