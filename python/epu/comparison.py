"""One ONNX node output, ORT against ISS: the row of the table, and the number that judges it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.exact_node import ExactNodes, ort_is_further, psnr_against
from epu.graph import Float, Integer, TensorType
from epu.metrics import (
    END_TO_END,
    Deviation,
    Row,
    Tolerance,
    compare,
    is_real,
    measure,
    passes,
    row_of,
    within_float32_rounding,
)
from epu.observed import NodeOutput, TensorMap, Tensors
from epu.reasons import Explainer
from epu.reasons_names import comment

NOTHING = np.zeros(0, np.float32)
NOT_OBSERVABLE = "not observable: neither a kernel output nor a tap of the program"
FOLDED = "folded at compile time"
EMPTY = "no elements"


@dataclass(frozen=True)
class Comparison:
    """One row, with what the gates need beside it.

    ``psnr_db`` judges reals: the row's own PSNR, or that against float64 where ORT is further from it.
    """

    row: Row
    output: NodeOutput
    type: TensorType
    mode: str
    psnr_db: float

    @property
    def is_compared(self) -> bool:
        """Whether the ISS showed the tensor."""
        return bool(self.row["S"] != "SKIPPED")


@dataclass(frozen=True)
class Yardstick:
    """What the ISS is compared with."""

    ort: Tensors
    places: TensorMap
    exact: ExactNodes
    tolerance: Tolerance
    reasons: Explainer


def compare_node(output: NodeOutput, yardstick: Yardstick, iss: Tensors, mode: str) -> Comparison:
    """Compare one node output; it may also be folded at compile time, or not observable."""
    ort, kind = yardstick.ort[output.tensor], yardstick.places.type_of(output.tensor)
    if ort.size == 0:
        return _given(ort, output, yardstick, mode, EMPTY)
    value = yardstick.places.value_of(output.tensor, iss, ort.shape)
    if value is not None:
        row, psnr = _explained(output, yardstick, value, iss, mode)
        return _comparison(row, passes(row, kind, mode, psnr), output, kind, mode, psnr)
    if yardstick.places.is_folded(output.tensor):
        return _given(ort, output, yardstick, mode, FOLDED)
    row = {**compare(NOTHING, NOTHING, kind, yardstick.tolerance), "Comment": NOT_OBSERVABLE, "reasons": {}}
    return _comparison(row, None, output, kind, mode, row["PSNR (dB)"])


def _given(ort: NDArray[Any], output: NodeOutput, yardstick: Yardstick, mode: str, why: str) -> Comparison:
    """A tensor that no kernel makes, and that is ORT's for a reason."""
    kind = Float() if ort.dtype.kind == "f" else Integer(str(ort.dtype))
    row = {**compare(ort, ort, kind, yardstick.tolerance), "Comment": why, "reasons": {}}
    return _comparison(row, True, output, kind, mode, row["PSNR (dB)"])


def compare_output(name: str, yardstick: Yardstick, raw: Tensors) -> Row:
    """A graph output of the free run, named by tensor; its node has been explained before."""
    ort, kind = yardstick.ort[name], yardstick.places.type_of(name)
    value = raw[name].reshape(ort.shape)
    deviation = measure(ort, value, kind)
    reasons = yardstick.reasons.explain_free(name, deviation, value)
    row = _with_reasons(row_of(deviation, ort, value, kind, yardstick.tolerance), reasons)
    return _titled("Output", name, row, passes(row, kind, END_TO_END, row["PSNR (dB)"]), END_TO_END)


def _explained(
    output: NodeOutput, yardstick: Yardstick, value: NDArray[Any], iss: Tensors, mode: str
) -> tuple[Row, float]:
    """The row with its reasons, and the PSNR that judges it."""
    ort, kind = yardstick.ort[output.tensor], yardstick.places.type_of(output.tensor)
    deviation = measure(ort, value, kind)
    reasons = yardstick.reasons.explain(output, deviation, value, kind, mode, iss)
    row = _with_reasons(row_of(deviation, ort, value, kind, yardstick.tolerance), reasons)
    return row, _judging_psnr(output, yardstick, deviation, kind, row["PSNR (dB)"])


def _with_reasons(row: Row, reasons: Mapping[str, int]) -> Row:
    return {**row, "Comment": comment(reasons), "reasons": dict(reasons)}


def _judging_psnr(
    output: NodeOutput, yardstick: Yardstick, deviation: Deviation, kind: TensorType, psnr: float
) -> float:
    """Of reals, that against float64 where ORT is further from it; the row's own otherwise."""
    wrong = deviation.steps != 0
    if not is_real(kind) or np.all(within_float32_rounding(deviation)[wrong]):
        return psnr
    exact = yardstick.exact.value(output.tensor)
    if exact is None or not ort_is_further(yardstick.ort[output.tensor], deviation.iss, exact):
        return psnr
    return psnr_against(exact, deviation.iss)


def _comparison(
    row: Row, passed: bool | None, output: NodeOutput, kind: TensorType, mode: str, psnr: float
) -> Comparison:
    return Comparison(_titled("Node", output.label, row, passed, mode), output, kind, mode, psnr)


def _titled(kind: str, name: str, row: Row, passed: bool | None, mode: str) -> Row:
    state = "SKIPPED" if passed is None else "PASS" if passed else "FAIL"
    return {"S": state, "Type": kind, "Name": name, **row, "mode": mode}
