"""How far the ISS is from ONNX Runtime on one tensor: one row of the validation table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Fixed, Float, Quantized, TensorType

Row = dict[str, Any]
Reals = NDArray[np.float64]

ISOLATED, SEGMENT, END_TO_END = "isolated", "segment", "end_to_end"
MODES = (ISOLATED, SEGMENT, END_TO_END)

FIXED_PSNR_GATE_DB = 120.0
INT8_LSB_GATE = 1
INT8_MISMATCH_RATE_GATE = 1e-6


@dataclass(frozen=True)
class Tolerance:
    """What the table calls a mismatch above tolerance.

    ``atol >= 0``: ``|error| > atol + rtol * |ORT|``, element by element. ``atol == -1``: ``|error| > rtol * max|ORT|``.
    """

    rtol: float = 0.1
    atol: float = -1

    def limit(self, ort: Reals) -> Reals:
        if self.atol == -1:
            return np.full(ort.shape, self.rtol * _peak(ort))
        return self.atol + self.rtol * np.abs(ort)


DEFAULT_TOLERANCE = Tolerance()


@dataclass(frozen=True)
class Deviation:
    """ORT's tensor and the ISS's raw integers, brought on the grid of the ISS type (Float: compared as they are).

    ``grid`` is ORT's value in LSBs, rounded half to even but never clipped, so that a clipped range shows.
    ``steps`` is the error in LSBs; it is infinite where ORT is not finite, because no integer stands for that.
    ``at_limit`` says where the ISS holds the lowest or highest integer of its word.
    """

    ort: Reals
    iss: Reals
    step: Reals
    at_limit: NDArray[np.bool_]
    grid: Reals
    steps: Reals

    @property
    def error(self) -> Reals:
        return self.steps * self.step

    def shaped(self, shape: tuple[int, ...]) -> Deviation:
        """The same elements in another shape."""
        ort, iss, step, grid, steps = (
            part.reshape(shape) for part in (self.ort, self.iss, self.step, self.grid, self.steps)
        )
        return Deviation(ort, iss, step, self.at_limit.reshape(shape), grid, steps)


def is_code(tensor_type: TensorType) -> bool:
    """int8 or uint8: compared step by step."""
    return isinstance(tensor_type, Quantized) and tensor_type.dtype in ("int8", "uint8")


def is_real(tensor_type: TensorType) -> bool:
    """Fixed point, and sums in units of a product of scales: judged by their PSNR."""
    return isinstance(tensor_type, (Fixed, Quantized)) and not is_code(tensor_type)


def dtype_name(tensor_type: TensorType, bits: int = 32) -> str:
    """The type as the table writes it: ``int8``, ``custom[qfp.27]32``, ``int64``; ``bits`` of a fixed-point word."""
    if isinstance(tensor_type, Fixed):
        return f"custom[qfp.{tensor_type.frac}]{bits}"
    if isinstance(tensor_type, Float):
        return "float32"
    return tensor_type.dtype


def compare(
    ort: NDArray[Any], iss: NDArray[Any], tensor_type: TensorType, tolerance: Tolerance = DEFAULT_TOLERANCE
) -> Row:
    """Compare ORT's tensor with the raw integers of the ISS; the row lacks S, Type and Name.

    Quantised and plain integers are compared as integers, fixed point as multiples of one LSB. Where ORT holds a
    float and the ISS a quantised tensor (an int8 chain that needs no float), the LSB is the quantisation step.
    PSNR is ``20 log10(max|ORT| / RMSE)``: +inf without error, -inf for an error against an all-zero ORT tensor or
    where ORT is not finite. An empty tensor has no error.
    """
    return row_of(measure(ort, iss, tensor_type), ort, iss, tensor_type, tolerance)


def row_of(
    deviation: Deviation, ort: NDArray[Any], iss: NDArray[Any], tensor_type: TensorType, tolerance: Tolerance
) -> Row:
    """The row of a measured deviation."""
    error, total = deviation.error, deviation.steps.size
    mismatches = int(np.count_nonzero(deviation.steps))
    location = _worst(error)
    rmse = float(np.sqrt(np.mean(np.square(error)))) if total else 0.0
    return {
        "dtype": dtype_name(tensor_type, 8 * iss.dtype.itemsize),
        "total": total,
        "Bitwise Mismatches": mismatches,
        "Mismatch %": 100.0 * mismatches / total if total else 0.0,
        "RMSE": rmse,
        "PSNR (dB)": psnr_db(_peak(deviation.ort), rmse),
        "Max Abs Err": float(error[location]) if total else 0.0,
        "Max Abs Err Loc": location,
        "ORT[loc]": _scalar(ort, location),
        "ISS[loc]": _iss_scalar(iss, location, deviation, tensor_type),
        "Max Abs Err / ε": float(deviation.steps.max()) if total else 0.0,
        "Mismatches Above Tol": int(np.count_nonzero(error > tolerance.limit(deviation.ort))),
        "rtol": tolerance.rtol,
        "atol": tolerance.atol,
        "Comment": "" if mismatches else "-",
    }


def measure(ort: NDArray[Any], iss: NDArray[Any], tensor_type: TensorType) -> Deviation:
    """Bring both tensors on the grid of the ISS type."""
    assert ort.shape == iss.shape, f"ORT has shape {ort.shape}, the ISS {iss.shape}"
    step, zero = _step_and_zero(tensor_type, ort)
    reals = np.asarray(ort, np.float64)
    raw = np.asarray(iss, np.float64)
    grid = reals if isinstance(tensor_type, Float) else np.rint(reals / step) + zero
    finite = np.isfinite(grid)
    steps = np.where(finite, np.abs(np.where(finite, grid, 0.0) - raw), np.inf)
    return Deviation(reals, (raw - zero) * step, np.broadcast_to(step, ort.shape), _at_limit(iss), grid, steps)


def decoded(iss: NDArray[Any], tensor_type: TensorType) -> Reals:
    """What raw integers of an ``is_real`` type stand for."""
    step, zero = _step_and_zero(tensor_type, np.zeros((1,) * iss.ndim, np.float32))
    return (np.asarray(iss, np.float64) - zero) * step


def psnr_db(peak: float, rmse: float) -> float:
    """Peak signal to noise ratio in dB; never NaN."""
    if rmse == 0.0:
        return float("inf")
    if peak == 0.0 or not np.isfinite(rmse):
        return float("-inf")
    return float(20.0 * np.log10(peak / rmse))


def passes(row: Row, tensor_type: TensorType, mode: str, fixed_psnr_db: float) -> bool:
    """The gate of one row; ``fixed_psnr_db`` is the PSNR that judges a fixed-point tensor.

    Isolated and segment: at most 1 LSB on quantised tensors, equality on plain integers, at least 120 dB on
    fixed point. End to end: nothing above tolerance.
    """
    if mode == END_TO_END:
        return bool(row["Mismatches Above Tol"] == 0)
    if is_real(tensor_type):
        return fixed_psnr_db >= FIXED_PSNR_GATE_DB
    limit = INT8_LSB_GATE if is_code(tensor_type) else 0
    return bool(row["Max Abs Err / ε"] <= limit)


def _at_limit(raw: NDArray[Any]) -> NDArray[np.bool_]:
    if raw.dtype.kind not in "iu":
        return np.zeros(raw.shape, np.bool_)
    info = np.iinfo(raw.dtype)
    limits: NDArray[np.bool_] = (raw == info.min) | (raw == info.max)
    return limits


def float32_unit(values: NDArray[Any]) -> Reals:
    """One float32 unit in the last place of each value; of the largest, as of the one below it."""
    largest = np.nextafter(np.finfo(np.float32).max, np.float32(0))
    return np.asarray(np.spacing(np.minimum(np.abs(np.asarray(values, np.float32)), largest)), np.float64)


def within_float32_rounding(deviation: Deviation) -> NDArray[np.bool_]:
    """Where the difference is at most half a float32 unit in the last place of ORT plus half an LSB of ours."""
    allowed = 0.5 * float32_unit(deviation.ort) + 0.5 * deviation.step
    explained: NDArray[np.bool_] = np.abs(deviation.ort - deviation.iss) <= allowed
    return explained


def _step_and_zero(tensor_type: TensorType, ort: NDArray[Any]) -> tuple[Reals, Reals]:
    """The LSB and the zero point, shaped to broadcast against the tensor."""
    if isinstance(tensor_type, Fixed):
        return np.array(2.0**-tensor_type.frac), np.array(0.0)
    if not isinstance(tensor_type, Quantized) or ort.dtype.kind != "f":
        return np.array(1.0), np.array(0.0)
    shape = [1] * ort.ndim
    if tensor_type.axis is not None and len(tensor_type.scale) > 1:
        shape[tensor_type.axis] = -1
    return np.array(tensor_type.scale).reshape(shape), np.array(tensor_type.zero_point, np.float64).reshape(shape)


def _peak(values: Reals) -> float:
    magnitude = np.abs(values)
    finite = magnitude[np.isfinite(magnitude)]
    return float(finite.max()) if finite.size else 0.0


def _worst(error: Reals) -> tuple[int, ...]:
    if not error.size:
        return ()
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))


def _scalar(values: NDArray[Any], location: tuple[int, ...]) -> int | float | bool | None:
    result: int | float | bool | None = values[location].item() if values.size else None
    return result


def _iss_scalar(
    iss: NDArray[Any], location: tuple[int, ...], deviation: Deviation, tensor_type: TensorType
) -> int | float | bool | None:
    if isinstance(tensor_type, Fixed) or np.any(deviation.step != 1.0):
        return _scalar(deviation.iss, location)
    return _scalar(iss, location)
