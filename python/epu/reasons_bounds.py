"""How far a fixed-point result may lie from the exact value of its operator: the bounds of docs/arithmetic.md.

Each bound is in reals, for operands taken as the fixed-point numbers that the kernel read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, log2, prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from epu import exact_windows as windows

Reals = NDArray[np.float64]

FLOAT64 = 2.0**-50  # of the judge itself
ANY = 2.0**-22  # of the peak: the 133 dB that every operator keeps
FACTOR = 2.0**-23  # float32(float32(sa * sb) * 2**f)
INVERSE = 2.0**-32  # of a constant
RECIPROCAL = 2.0**-29  # reciprocal and inverse square root, with their rounded argument
KEPT = 2.0**31  # a product of two words is shifted by 31 bits to be one again
SMOOTH = 2.0**-28
EXP_UNITS, EXACT_EXP_UNITS = 10 * 2.0**-30, 2.0**-31


@dataclass(frozen=True)
class Case:
    """A node: its operands in reals (None where absent), its exact result, one unit of the ISS result, and per operand
    one unit of its own, 0 for what the kernel knows exactly. ``coarse``: operands that the kernel knows better than shown.
    ``constant``: operands whose inverse is known at compile time. ``coded``: operands that are codes times scales."""

    node: onnx.NodeProto
    operands: Sequence[Any]
    exact: Reals
    unit: float
    units: Sequence[float]
    coarse: Sequence[bool]
    constant: Sequence[bool] = ()
    coded: Sequence[bool] = ()
    exact_exponentials: bool = False


Bound = Callable[[Case], Any]


def bound_of(case: Case) -> Reals:
    """Largest error that the ISS may show, element by element or one for all."""
    rule = BOUNDS.get(case.node.op_type, _any)
    return np.asarray(rule(case) + FLOAT64 * np.abs(case.exact), np.float64)


def repetition_of(case: Case) -> Reals | None:
    """How far the ISS may lie from ORT's own result where ``rounding="ort"`` repeats its float32 steps; None where it does not.

    LayerNormalization: the bound of the kernel, and a last place more in each of the four steps after the sums, which 2⁻³⁰ of the
    root or of the reciprocal may decide.
    """
    if case.node.op_type != "LayerNormalization":
        return None
    beta = case.operands[2] if len(case.operands) > 2 and case.operands[2] is not None else np.zeros(1)
    steps = 4 * 2.0**-23 * (np.abs(case.exact - beta) + np.abs(case.exact))
    return np.asarray(bound_of(case) + steps, np.float64)


def float32_floor(op: str) -> float:
    """What float32 may be wrong by in functions that ORT approximates for values up to 1."""
    return 2.0**-21 if op in ("Erf", "HardSigmoid", "Sigmoid", "Softmax", "Tanh") else 0.0


def is_table(op: str) -> bool:
    """Whether the operator approximates a function by a table or a polynomial."""
    return op in TABLES


def _any(case: Case) -> Any:
    return case.unit + ANY * _peak(case.exact)


def _units(count: float) -> Bound:
    return lambda case: count * case.unit


def _smooth(largest: float) -> Bound:
    """One polynomial of a function up to ``largest``, rounded once or twice."""
    return lambda case: case.unit + SMOOTH * largest


def _div(case: Case) -> Any:
    divisor = np.abs(case.operands[1])
    if any(case.constant[1:]):
        return 0.5 * case.unit + INVERSE * np.abs(case.exact)
    relative = np.full(divisor.shape, (3 if case.coarse[1] else 1) * RECIPROCAL)
    if case.coarse[1]:
        relative = relative + 0.5 * case.units[1] / np.maximum(divisor, case.units[1])
    return 0.5 * case.unit + np.abs(case.exact) * relative


def _relative(case: Case) -> Any:
    return 0.5 * case.unit + RECIPROCAL * 2 * np.abs(case.exact)


def _pow(case: Case) -> Any:
    """Of powers 3 and 4 all products but the last keep their upper 31 bits."""
    x, exponent = case.operands[:2]
    general = case.unit + RECIPROCAL * np.abs(case.exact)
    if x is None or exponent is None or np.size(exponent) != 1 or float(np.ravel(exponent)[0]) not in (3.0, 4.0):
        return general
    unit, error = case.units[0], np.zeros(1)
    for _ in range(int(np.ravel(exponent)[0]) - 2):
        unit *= case.units[0] * KEPT
        error = error * np.abs(x) + 0.5 * unit
    return general + error * np.abs(x)


def _mean(case: Case) -> Any:
    return 0.5 * case.unit + case.units[0] + RECIPROCAL * np.abs(case.exact)


def _products(case: Case) -> Any:
    """K sums of products, each rounded to ``2**(sigma - fa - fb)``; of codes an integer times one float32 factor."""
    if len(case.coded) > 1 and all(case.coded[:2]):
        addend = case.operands[2] if len(case.operands) > 2 and case.operands[2] is not None else np.zeros(1)
        return 1.5 * case.unit + FACTOR * (np.abs(case.exact) + np.abs(addend).max())
    depth = _depth(case)
    rounded = 0.5 * depth * 2.0 ** ceil(log2(max(depth, 1))) * case.units[0] * case.units[1]
    return case.unit + rounded


def _depth(case: Case) -> int:
    a, b = case.operands[:2]
    if case.node.op_type in ("Conv", "ConvTranspose"):
        return prod(b.shape[1:]) if case.node.op_type == "Conv" else int(b.shape[0])
    return int(a.shape[-2 if windows.attributes(case.node).get("transA", 0) else -1])


def _softmax(case: Case) -> Any:
    """Errors of the exponentials, of their sum, of its reciprocal, and the last rounding."""
    axis = windows.attributes(case.node).get("axis", -1)
    units = EXACT_EXP_UNITS if case.exact_exponentials else EXP_UNITS
    total = case.exact.shape[axis] * units * case.exact.max(axis=axis, keepdims=True)
    return 0.5 * case.unit + units + case.exact * (total + RECIPROCAL * 2)


def _layer_norm(case: Case) -> Any:
    """Errors of the mean and the differences over the deviation, of the inverse root, and three roundings."""
    x, gamma = case.operands[:2]
    axes = tuple(range(windows.attributes(case.node).get("axis", -1) % x.ndim, x.ndim))
    deviation = np.sqrt(x.var(axis=axes, keepdims=True) + windows.attributes(case.node).get("epsilon", 1e-5))
    count = prod(x.shape[axis] for axis in axes)
    normalised = np.sqrt(count) / deviation  # how a difference moves its own value, and through the deviation all
    inner = 2.0 ** -(29 - ceil(log2(count)) // 2)
    beta = case.operands[2] if len(case.operands) > 2 and case.operands[2] is not None else np.zeros(1)
    scaled = np.abs(case.exact - beta)
    return (
        2 * case.unit
        + np.abs(gamma) * (4 * case.units[0] / deviation + inner)
        + scaled * (4 * RECIPROCAL + 4 * case.units[0] * normalised / np.sqrt(count))
    )


def _clip(case: Case) -> Any:
    return 0.5 * case.unit


def _exp(case: Case) -> Any:
    return 33 * case.unit


def _hard_swish(case: Case) -> Any:
    return case.unit + 2.0**-24 * np.abs(case.exact) + 2.0**-29 * np.abs(case.operands[0])


def _slope(case: Case) -> Any:
    return 0.5 * case.unit + (0.5 * case.units[1] * np.abs(case.operands[0]) if len(case.operands) > 1 else 0.0)


def _resize(case: Case) -> Any:
    return case.unit + 2.0**-28 * _peak(case.operands[0])


def _root_sum(case: Case) -> Any:
    return 1.5 * case.unit + 4 * RECIPROCAL * np.abs(case.exact) + case.units[0]


def _dequantized(case: Case) -> Any:
    return 0.5 * case.unit


def _peak(values: Reals) -> float:
    return float(np.abs(values).max(initial=0.0))


TABLES = (
    *("Div", "Elu", "Erf", "Exp", "FastGelu", "Gelu", "LayerNormalization", "Log", "QuickGelu", "Reciprocal"),
    *("ReduceL2", "Sigmoid", "Softmax", "Softplus", "Sqrt", "Tanh"),
)
MOVES = (
    *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Slice", "Gather", "Expand", "Tile"),
    *("DepthToSpace", "SpaceToDepth", "Dropout", "Concat", "Pad", "Split"),
)
BOUNDS: dict[str, Bound] = {
    **dict.fromkeys(MOVES, _units(0.5)),
    **dict.fromkeys(("Relu", "Neg", "Abs", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin"), _units(0.5)),
    **dict.fromkeys(("Max", "Min", "Where", "ReduceSum", "Mul"), _units(0.5)),
    **dict.fromkeys(("Add", "Sub", "HardSigmoid"), _units(1)),
    **dict.fromkeys(("ReduceMean", "GlobalAveragePool", "AveragePool"), _mean),
    **dict.fromkeys(("MatMul", "Gemm", "Conv", "ConvTranspose"), _products),
    **dict.fromkeys(("Erf", "Tanh", "Sigmoid", "Softplus"), _smooth(1.0)),
    **dict.fromkeys(("Reciprocal", "Sqrt"), _relative),
    **dict.fromkeys(("LeakyRelu", "PRelu"), _slope),
    "Clip": _clip,
    "DequantizeLinear": _dequantized,
    "Div": _div,
    "Exp": _exp,
    "Gelu": _smooth(0.25),
    "HardSwish": _hard_swish,
    "LayerNormalization": _layer_norm,
    "Log": _smooth(1.0),
    "Pow": _pow,
    "ReduceL2": _root_sum,
    "Resize": _resize,
    "Softmax": _softmax,
}
