"""One ONNX node output, ORT against ISS: the row of the table, and the number that judges it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.exact_node import ExactNodes, ort_is_further, psnr_against
from epu.graph import Float, Integer, TensorType
from epu.metrics import END_TO_END, FLOAT32_ROUNDING, ISOLATED, Row, Tolerance, compare, decoded, is_real, passes
from epu.observed import NodeOutput, TensorMap, Tensors

NOTHING = np.zeros(0, np.float32)
NOT_OBSERVABLE = "not observable: neither a kernel output nor a tap of the program"
FOLDED = "folded at compile time"


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


@dataclass(frozen=True)
class Yardstick:
    """What the ISS is compared with."""

    ort: Tensors
    places: TensorMap
    exact: ExactNodes
    tolerance: Tolerance


def compare_node(output: NodeOutput, yardstick: Yardstick, iss: Tensors, mode: str) -> Comparison:
    """Compare one node output; it may also be folded at compile time, or not observable."""
    ort, kind = yardstick.ort[output.tensor], yardstick.places.type_of(output.tensor)
    value = yardstick.places.value_of(output.tensor, iss, ort.shape)
    if value is not None:
        row, psnr = _arbitrated(output, yardstick, value, kind)
        return _comparison(row, passes(row, kind, mode, psnr), output, kind, mode, psnr)
    if yardstick.places.is_folded(output.tensor):
        kind = Float() if ort.dtype.kind == "f" else Integer(str(ort.dtype))
        row = {**compare(ort, ort, kind, yardstick.tolerance), "Comment": FOLDED}
        return _comparison(row, True, output, kind, mode, row["PSNR (dB)"])
    row = {**compare(NOTHING, NOTHING, kind, yardstick.tolerance), "Comment": NOT_OBSERVABLE}
    return _comparison(row, None, output, kind, mode, row["PSNR (dB)"])


def compare_output(name: str, yardstick: Yardstick, raw: Tensors) -> Row:
    """A graph output of the free run, named by tensor."""
    ort, kind = yardstick.ort[name], yardstick.places.type_of(name)
    row = compare(ort, raw[name].reshape(ort.shape), kind, yardstick.tolerance)
    return _titled("Output", name, row, passes(row, kind, END_TO_END, row["PSNR (dB)"]), END_TO_END)


def explained(comparisons: Iterable[Comparison]) -> Iterable[Comparison]:
    """Where a kernel is right on ORT's own tensors, its mismatches in the other modes come from upstream."""
    every = list(comparisons)
    right = {c.output for c in every if c.mode == ISOLATED and c.row["Comment"] in ("-", FLOAT32_ROUNDING)}
    for each in every:
        if each.mode != ISOLATED and each.row["Comment"] == "" and each.output in right:
            each.row["Comment"] = "upstream"
        yield each


def _arbitrated(output: NodeOutput, yardstick: Yardstick, value: NDArray[Any], kind: TensorType) -> tuple[Row, float]:
    """The row and the PSNR that judges it: on an unexplained difference of reals float64 says who is right."""
    ort = yardstick.ort[output.tensor]
    row = compare(ort, value, kind, yardstick.tolerance)
    if not is_real(kind) or row["Comment"] != "":
        return row, row["PSNR (dB)"]
    exact = yardstick.exact.value(output.tensor)
    real = decoded(value, kind)
    if exact is None or not ort_is_further(ort, real, exact):
        return row, row["PSNR (dB)"]
    return {**row, "Comment": FLOAT32_ROUNDING}, psnr_against(exact, real)


def _comparison(
    row: Row, passed: bool | None, output: NodeOutput, kind: TensorType, mode: str, psnr: float
) -> Comparison:
    return Comparison(_titled("Node", output.label, row, passed, mode), output, kind, mode, psnr)


def _titled(kind: str, name: str, row: Row, passed: bool | None, mode: str) -> Row:
    state = "SKIPPED" if passed is None else "PASS" if passed else "FAIL"
    return {"S": state, "Type": kind, "Name": name, **row, "mode": mode}
