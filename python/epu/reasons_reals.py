"""Why fixed-point numbers and sums differ: the ISS within its stated bound of the exact value, or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epu.metrics import Deviation, float32_unit
from epu.reasons_names import Reason
from epu.reasons_terms import Part, Reals, Terms

UNIT32 = 2.0**-24
STEPS32 = 8
WORD_LIMIT = 2.0**31 - 1  # steps
PLAUSIBLE = 2.0**-14  # of the peak: float32 with cancellation, as in ORT's LayerNormalization


@dataclass(frozen=True)
class Judgement:
    """``iss_exact``: the exact value for what the kernel read; ``ort_exact``: for ORT's own operands; ``bound``: the
    largest error of the ISS. ``table``: the operator approximates a function. ``clipped``: an operand exceeds its word.
    ``floor``: an error that is float32's even where all results are small. ``repeats``: where the ISS repeats ORT's float32
    steps, how far apart the two may lie."""

    iss_exact: Reals
    ort_exact: Reals
    bound: Reals
    table: bool = False
    clipped: bool = False
    floor: float = 0.0
    repeats: Reals | None = None


def explain_fixed(deviation: Deviation, judgement: Judgement, wrong: NDArray[np.bool_]) -> NDArray[np.int8]:
    """A reason per element of ``wrong`` (a mask of the tensor); the bound may broadcast."""
    shape = deviation.ort.shape

    def of(array: Reals) -> Reals:
        return _elements(array, shape, wrong)

    iss, ort, step = of(deviation.iss), of(deviation.ort), of(deviation.step)
    iss_exact, ort_exact = of(judgement.iss_exact), of(judgement.ort_exact)
    limit = deviation.at_limit[wrong] | (np.abs(iss) >= WORD_LIMIT * step - of(judgement.bound))
    beyond = limit & (np.abs(iss_exact) >= np.abs(iss) - step) & (iss_exact * iss >= 0)
    right = (np.abs(iss - iss_exact) <= of(judgement.bound)) | beyond
    peak = float(np.abs(judgement.ort_exact).max(initial=0.0))
    plausible = np.abs(ort - ort_exact) <= max(PLAUSIBLE * peak, judgement.floor)
    plausible |= ort == ort_exact  # infinities too
    found = np.full(iss.size, Reason.UNEXPLAINED, np.int8)
    known = right & plausible
    nearer = np.abs(iss - ort_exact) <= np.abs(ort - ort_exact)
    found[known] = Reason.TABLE if judgement.table else Reason.FIXED
    found[known & (nearer | _within_half_unit(iss, ort, step))] = Reason.FLOAT32
    if judgement.repeats is not None:
        found[plausible & (np.abs(iss - ort) <= of(judgement.repeats))] = Reason.FLOAT32
    moved = np.abs(iss_exact - ort_exact) > np.abs(iss - iss_exact) + np.abs(ort - ort_exact)
    found[known & moved & judgement.clipped] = Reason.CLIPPED
    found[known & beyond & (np.abs(ort) > np.abs(iss))] = Reason.CLIPPED
    return found


def explain_sums(deviation: Deviation, value: Terms, wrong: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Integer sums in units of a product of scales: the ISS holds the exact integer, ORT adds in float32."""
    shape = deviation.ort.shape

    def of(array: Reals) -> Reals:
        return _elements(array, shape, wrong)

    exact = sum((of(part.reals) for part in value), start=np.zeros(1))
    largest = sum((of(part.largest) for part in value), start=np.zeros(1))
    depth = max(part.depth for part in value)
    plausible = np.abs(of(deviation.ort) - exact) <= (depth + STEPS32) * UNIT32 * largest
    right = _is_sum(of(deviation.iss), of(deviation.step), value, of)
    if right is None:
        right = np.abs(of(deviation.iss) - exact) <= 4 * UNIT32 * largest
    return np.where(right & plausible, Reason.FLOAT32, Reason.UNEXPLAINED).astype(np.int8)


def _is_sum(iss: Reals, step: Reals, value: Terms, of: object) -> NDArray[np.bool_] | None:
    """Whether the integers are equal; None where the unit is no product of the scales."""
    assert callable(of)
    if len(value) != 1 or np.any(np.asarray(value[0].count) != 1.0):
        return None
    part: Part = value[0]
    unit = of(np.asarray(part.quotient_factor(np.ones((), np.float32)), np.float64))
    if not np.allclose(unit, step, rtol=4 * UNIT32, atol=0.0):
        return None
    return np.asarray(np.rint(iss / step) == of(part.ints), np.bool_)


def _elements(array: Reals, shape: tuple[int, ...], wrong: NDArray[np.bool_]) -> Reals:
    """The masked elements of what has the shape or broadcasts to it; one element is a scalar, of whatever rank."""
    whole = array.reshape(shape) if array.size == 1 == wrong.size else np.broadcast_to(array, shape)
    return np.asarray(whole[wrong], np.float64)


def _within_half_unit(iss: Reals, ort: Reals, step: Reals) -> NDArray[np.bool_]:
    """Whether the two may be the float32 and the fixed-point rounding of one number."""
    unit = float32_unit(ort)
    return np.asarray(np.abs(ort - iss) <= 0.5 * unit + 0.5 * step, np.bool_)
