"""Why codes differ: the exact quotient that both sides round, element by element.

The ISS is right where its code is the exact quotient of docs/arithmetic.md, rounded half to even. Only then is the
difference ORT's: a tie that its float32 breaks, or an error within the bound of float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.reasons_contrib import Coded
from epu.reasons_names import Reason
from epu.reasons_terms import Part, along, element

Array = NDArray[Any]
Reals = NDArray[np.float64]

NEAR = 1e-9  # of a tie: float64 does not decide, fractions do
UNIT32 = 2.0**-24  # half a unit in the last place of 1
STEPS32 = 8  # float32 roundings around a sum
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Elements:
    """The mismatching elements: their places, the codes of the ISS, ORT's on the same grid but never clipped."""

    places: NDArray[np.intp]  # [count, rank]
    shape: tuple[int, ...]
    iss: Reals
    ort: Reals
    limits: tuple[int, int]

    def of(self, array: Any) -> Reals:
        """Their values of what broadcasts to the shape."""
        return np.asarray(np.broadcast_to(array, self.shape)[tuple(self.places.T)], np.float64)

    def index(self, number: int) -> tuple[int, ...]:
        return tuple(int(each) for each in self.places[number])


class Quotient:
    """``value / scale + zero`` at some elements: the contract's, and the exact one of the float32 scales."""

    def __init__(self, rounded: Coded, at: Elements) -> None:
        rank = len(at.shape)
        self.scale = along(np.asarray(rounded.scale, np.float32), rounded.axis, rank)
        self.zero = at.of(along(np.asarray(rounded.zero, np.float64), rounded.axis, rank))
        self.value = rounded.value
        self.parts: tuple[Part, ...] = rounded.value if isinstance(rounded.value, tuple) else ()
        self.factors = [part.quotient_factor(self.scale) for part in self.parts]
        self._at = at

    @property
    def one_factor(self) -> bool:
        """Whether the operator multiplies by float32 factors, rather than by the exact ratio of scales."""
        return len(self.parts) > 1 or any(part.combined for part in self.parts)

    @property
    def contract(self) -> Reals:
        """float64; decides unless near a tie."""
        if not self.one_factor:
            return self.truth
        pairs = zip(self.parts, self.factors)
        return sum((self._at.of(part.ints) * self._at.of(factor) for part, factor in pairs), start=self._nothing)

    @property
    def truth(self) -> Reals:
        """float64 of the exact quotient."""
        reals = [part.reals for part in self.parts] if self.parts else [np.asarray(self.value, np.float64)]
        scale = self._at.of(self.scale)
        return sum((self._at.of(each) for each in reals), start=self._nothing) / scale

    @property
    def _nothing(self) -> Reals:
        return np.zeros(len(self._at.iss))

    def float32_error(self) -> Reals:
        """What float32 may be wrong by, in codes: a unit per rounding, relative to the absolute sums."""
        if not self.parts:
            size, depth = np.abs(self.truth), 0
        else:
            size = sum(self._at.of(part.largest) for part in self.parts) / self._at.of(self.scale)
            depth = max(part.depth for part in self.parts)
        return np.asarray((depth + STEPS32) * UNIT32 * (size + np.abs(self.zero)), np.float64)

    def float32_code(self) -> Reals | None:
        """``rounding="ort"``: the sum and its product with the factor rounded to float32; None for what repeats each float32
        step of a group (an Add, a Mul), and for tables."""
        if len(self.parts) != 1 or not self.one_factor or self.parts[0].depth == 1:
            return None
        ints, factor = self._at.of(self.parts[0].ints), self._at.of(self.factors[0])
        return np.rint(ints.astype(np.float32) * factor.astype(np.float32)).astype(np.float64)

    def exact_contract(self, number: int) -> Fraction:
        if not self.one_factor:
            return self.exact_truth(number)
        index, shape = self._at.index(number), self._at.shape
        pairs = zip(self.parts, self.factors)
        terms = (part.whole(index) * Fraction(float(element(factor, shape, index))) for part, factor in pairs)
        return sum(terms, start=Fraction(0))

    def exact_truth(self, number: int) -> Fraction:
        index = self._at.index(number)
        scale = Fraction(float(element(self.scale, self._at.shape, index)))
        if not self.parts:
            return Fraction(float(element(np.asarray(self.value), self._at.shape, index))) / scale
        return sum((part.fraction(index) for part in self.parts), start=Fraction(0)) / scale


def explain_codes(
    rounded: Coded,
    at: Elements,
    slack: Reals,
    *,
    table: bool = False,
    float32: bool = False,
    drift: Reals | float = 0.0,
) -> NDArray[np.int8]:
    """A reason per element.

    ``slack``: codes by which the ISS's own value may be wrong before it is rounded (0: it rounds the exact quotient).
    ``table``: such an error is a table's. ``float32``: the ISS repeats ORT's rounding. ``drift``: codes by which what ORT
    rounded differs from ``rounded``, which is what the ISS read.
    """
    quotient = Quotient(rounded, at)
    right, tie = _right(quotient, at, slack, float32)
    truth = quotient.truth
    off = np.abs(at.ort - quotient.zero - truth)
    low, high = at.limits
    beyond = ((truth + quotient.zero > high + 0.5) & (at.iss == high)) | (
        (truth + quotient.zero < low - 0.5) & (at.iss == low)
    )
    plausible = off <= 0.5 + quotient.float32_error() + (NEAR if quotient.parts else slack) + drift
    found = np.full(len(at.iss), Reason.UNEXPLAINED, np.int8)
    found[right & plausible] = Reason.FLOAT32
    found[right & plausible & tie] = Reason.TIE
    found[right & beyond & plausible] = Reason.SATURATION
    allowed = ~right & (np.abs(at.iss - quotient.zero - truth) <= 0.5 + slack) & (slack > 0) & plausible
    found[allowed] = Reason.TABLE if table else Reason.FIXED
    return found


def _right(
    quotient: Quotient, at: Elements, slack: Reals, float32: bool
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Where the ISS holds the contract's code, and where the exact quotient lies on a tie."""
    contract, truth = quotient.contract, quotient.truth
    codes, tie = np.rint(contract), np.zeros(len(at.iss), np.bool_)
    near = np.flatnonzero(_near_tie(contract) | _near_tie(truth))
    for number in near:
        exact = quotient.exact_contract(number)
        codes[number] = round(exact)
        tie[number] = HALF in ((exact % 1), quotient.exact_truth(number) % 1)
    expected = np.clip(codes + quotient.zero, *at.limits)
    repeated = quotient.float32_code() if float32 else None
    if repeated is not None:
        expected = np.clip(repeated + quotient.zero, *at.limits)
    right = at.iss == expected
    if float32 and repeated is None:
        right |= ~tie & (np.abs(at.iss - quotient.zero - truth) <= 0.5 + quotient.float32_error())
    if not quotient.parts:  # float64 itself may miss what is no tie by a little
        unsure = np.zeros_like(right)
        unsure[near] = ~tie[near]
        right |= unsure & (np.abs(at.iss - quotient.zero - truth) <= 0.5 + NEAR)
    return right, tie


def _near_tie(quotient: Reals) -> NDArray[np.bool_]:
    return np.abs(quotient - np.floor(quotient) - 0.5) <= NEAR * np.maximum(1.0, np.abs(quotient))
