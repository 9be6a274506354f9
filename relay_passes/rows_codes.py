"""Clips of int8 and uint8 codes, as QNN graphs have them behind a requantize: tables of 256 entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.relay_passes.draft import Draft, Use, refuse
from epu.relay_passes.relay_view import Const, Operand, Step

CODES = ("int8", "uint8")
Limits = tuple[float, float]


def clipped_codes(limits: Callable[[Step], Limits | None]) -> Callable[[Step], Draft | None]:
    """Row of a clip whose ``limits`` are codes; the result means what its input does. None where it is no clip of codes."""

    def row(step: Step) -> Draft | None:
        found = limits(step) if step.dtype in CODES else None
        if found is None:
            return None
        operand = next(arg for arg in step.args if not isinstance(arg, Const))
        table = _table(step, *found)
        attrs = {"table": table, "table_ort": table, "inner": {}}
        return Draft("QuantizedUnary", step, [Use(operand)], attrs, None, [step])

    return row


def _table(step: Step, low: float, high: float) -> NDArray[Any]:
    info = np.iinfo(step.dtype)
    if low > high:
        raise refuse(step, "the lower limit must not exceed the upper one", f"{low} and {high}", "Correct the clip")
    bounds = (int(np.ceil(max(low, info.min))), int(np.floor(min(high, info.max))))
    return np.clip(np.arange(info.min, info.max + 1), *bounds).astype(step.dtype)


def of_clip(step: Step) -> Limits:
    return float(step.attrs.a_min), float(step.attrs.a_max)


def of_relu(step: Step) -> Limits:
    return 0.0, np.inf


def of_maximum(step: Step) -> Limits | None:
    bound = _one_constant(step.args)
    return None if bound is None else (bound, np.inf)


def of_minimum(step: Step) -> Limits | None:
    bound = _one_constant(step.args)
    return None if bound is None else (-np.inf, bound)


def _one_constant(args: tuple[Operand, ...] | list[Operand]) -> float | None:
    """The one element of the one constant operand."""
    constants = [arg for arg in args if isinstance(arg, Const)]
    if len(constants) != 1 or constants[0].data.size != 1:
        return None
    return float(constants[0].data.reshape(-1)[0])
