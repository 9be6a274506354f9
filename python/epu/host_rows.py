"""Rows of the nodes that ran on the host: ONNX Runtime against itself, on what the stages before gave it."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from epu.comparison import Comparison
from epu.graph import Float, Integer, Quantized, TensorType
from epu.metrics import END_TO_END, FIXED_PSNR_GATE_DB, INT8_LSB_GATE, ISOLATED, Row, Tolerance, compare
from epu.observed import NodeOutput

HOST = "host"
RAN_ON_HOST = "ran on the host"


def compare_host(
    output: NodeOutput, ort: NDArray[Any], value: NDArray[Any], mode: str, tolerance: Tolerance
) -> Comparison:
    """The row of one host node output: equal on ORT's tensors, in the other modes off by what reaches it."""
    kind = host_type(ort)
    row = {**compare(ort, value, kind, tolerance), "Comment": RAN_ON_HOST, "reasons": {}}
    state = "PASS" if passes_on_host(row, kind, mode) else "FAIL"
    titled = {"S": state, "Type": HOST, "Name": output.label, **row, "mode": mode}
    return Comparison(titled, output, kind, mode, row["PSNR (dB)"])


def compare_host_output(name: str, ort: NDArray[Any], value: NDArray[Any], tolerance: Tolerance) -> Row:
    """The row of an output of the model that the host makes."""
    kind = host_type(ort)
    row = {**compare(ort, value, kind, tolerance), "Comment": RAN_ON_HOST, "reasons": {}}
    state = "PASS" if passes_on_host(row, kind, END_TO_END) else "FAIL"
    return {"S": state, "Type": "Output", "Name": name, **row, "mode": END_TO_END}


def passes_on_host(row: Row, kind: TensorType, mode: str) -> bool:
    """Isolated: bit for bit. Segment: what a kernel of that type must reach. End to end: nothing above tolerance."""
    if mode == ISOLATED:
        return bool(row["Bitwise Mismatches"] == 0)
    if mode == END_TO_END:
        return bool(row["Mismatches Above Tol"] == 0)
    if isinstance(kind, Float):
        return bool(row["PSNR (dB)"] >= FIXED_PSNR_GATE_DB)
    return bool(row["Max Abs Err / ε"] <= (INT8_LSB_GATE if isinstance(kind, Quantized) else 0))


def host_type(values: NDArray[Any]) -> TensorType:
    """int8 and uint8 are codes of a quantised tensor, in steps of one; other integers and masks are plain."""
    if values.dtype.kind == "f":
        return Float()
    name = str(values.dtype)
    return Quantized(name, (1.0,), (0,)) if name in ("int8", "uint8") else Integer(name)
