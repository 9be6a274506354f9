"""Element functions on the 256 codes of an int8 tensor: exact rationals, and float32 as ONNX Runtime rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import erf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu import real_functions as reals
from epu.constants import clip_to, exp, logistic, nearest
from epu.graph import Graph, Node, Quantized, TensorType
from epu.operators import qlinear_tables
from epu.operators.activation import bounds, slope
from epu.operators.row import constant_reals
from epu.operators.smooth_functions import gelu_tanh_tail

Array = NDArray[Any]
Reals = list[Fraction]
Context = tuple[Node, Graph]

HALF = Fraction(1, 2)
POWERS = (HALF, *(Fraction(each) for each in range(2, 9)))
LARGEST_EXPONENT = Fraction(80)  # e**80 is beyond every code
BEYOND, FLOAT_BEYOND = Fraction(2**60), 2.0**60  # instead of infinity


def exact_clip(x: Fraction, context: Context) -> Fraction:
    low, high = bounds(*context)
    x = x if low == -np.inf else max(x, Fraction(low))
    return x if high == np.inf else min(x, Fraction(high))


def float32_clip(x: Array, context: Context) -> Array:
    low, high = bounds(*context)
    return np.minimum(np.maximum(x, np.float32(low)), np.float32(high))


def exact_hard_sigmoid(x: Fraction, context: Context) -> Fraction:
    alpha, beta = (Fraction(float(np.float32(each))) for each in slope(context[0]))
    return min(max(alpha * x + beta, Fraction(0)), Fraction(1))


def float32_hard_sigmoid(x: Array, context: Context) -> Array:
    alpha, beta = (np.float32(each) for each in slope(context[0]))
    return np.minimum(np.maximum(alpha * x + beta, np.float32(0)), np.float32(1))


def float32_logistic(x: Array) -> Array:
    return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)


def exact_exp(x: Fraction) -> Fraction:
    return exp(min(x, LARGEST_EXPONENT))


def exact_log(x: Fraction) -> Fraction:
    return Fraction(reals.log(reals.decimal(x))) if x > 0 else -BEYOND


def exact_sqrt(x: Fraction) -> Fraction:
    return Fraction(reals.sqrt(reals.decimal(x))) if x > 0 else Fraction(0)


def exact_reciprocal(x: Fraction) -> Fraction:
    return 1 / x if x else BEYOND


def exact_power(x: Fraction, power: Fraction) -> Fraction:
    return exact_sqrt(x) if power == HALF else x ** int(power)


def exact_gelu(x: Fraction, context: Context) -> Fraction:
    if context[0].attrs.get("approximate", "none") == "tanh":
        u = reals.decimal(abs(x))
        return max(x, Fraction(0)) + Fraction(gelu_tanh_tail(u))
    return x * Fraction(reals.normal(reals.decimal(x)))


def exact_elu(x: Fraction, context: Context) -> Fraction:
    return x if x >= 0 else Fraction(float32_attribute(context, "alpha", 1.0)) * (exp(x) - 1)


def exact_leaky_relu(x: Fraction, context: Context) -> Fraction:
    return x if x >= 0 else x * Fraction(float32_attribute(context, "alpha", 0.01))


def exact_hard_swish(x: Fraction, context: Context) -> Fraction:
    return x * min(max(x / 6 + HALF, Fraction(0)), Fraction(1))


def float32_attribute(context: Context, name: str, default: float) -> float:
    return float(np.float32(context[0].attrs.get(name, default)))


def in_float64(function: Callable[..., Any]) -> Callable[..., Array]:
    """``function`` of float64 operands, rounded to float32 once; what has no real value is left to the quantiser."""

    def run(*arguments: Any) -> Array:
        *operands, context = arguments
        with np.errstate(all="ignore"):
            found = function(*(np.asarray(each, np.float64) for each in operands), context)
            return np.clip(np.nan_to_num(np.asarray(found, np.float64)), -FLOAT_BEYOND, FLOAT_BEYOND).astype(np.float32)

    return run


def float64_gelu(x: Array, context: Context) -> Any:
    if context[0].attrs.get("approximate", "none") == "tanh":
        return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2
    return x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2


def float64_elu(x: Array, context: Context) -> Any:
    return np.where(x >= 0, x, float32_attribute(context, "alpha", 1.0) * np.expm1(np.minimum(x, 0)))


def float32_leaky_relu(x: Array, context: Context) -> Array:
    return np.where(x >= 0, x, x * np.float32(context[0].attrs.get("alpha", 0.01)))


# op -> function of its variable and constant operands in order, and of (node, graph)
EXACT_FUNCTIONS: dict[str, Callable[..., Fraction]] = {
    "Relu": lambda x, context: max(x, Fraction(0)),
    "Clip": exact_clip,
    "HardSigmoid": exact_hard_sigmoid,
    "Sigmoid": lambda x, context: logistic(x),
    "Add": lambda a, b, context: a + b,
    "Sub": lambda a, b, context: a - b,
    "Mul": lambda a, b, context: a * b,
    "Div": lambda a, b, context: a / b,
    "Max": lambda a, b, context: max(a, b),
    "Min": lambda a, b, context: min(a, b),
    "Pow": lambda a, b, context: exact_power(a, b),
    "Neg": lambda x, context: -x,
    "Abs": lambda x, context: abs(x),
    "Sqrt": lambda x, context: exact_sqrt(x),
    "Reciprocal": lambda x, context: exact_reciprocal(x),
    "Exp": lambda x, context: exact_exp(x),
    "Log": lambda x, context: exact_log(x),
    "Erf": lambda x, context: Fraction(reals.erf(reals.decimal(x))),
    "Tanh": lambda x, context: Fraction(reals.tanh(reals.decimal(x))),
    "Softplus": lambda x, context: max(x, Fraction(0)) + Fraction(reals.softplus(-reals.decimal(abs(x)))),
    "Gelu": exact_gelu,
    "Elu": exact_elu,
    "LeakyRelu": exact_leaky_relu,
    "HardSwish": exact_hard_swish,
}
FLOAT32_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "Relu": lambda x, context: np.maximum(x, np.float32(0)),
    "Clip": float32_clip,
    "HardSigmoid": float32_hard_sigmoid,
    "Sigmoid": lambda x, context: float32_logistic(x),
    "Add": lambda a, b, context: a + b,
    "Sub": lambda a, b, context: a - b,
    "Mul": lambda a, b, context: a * b,
    "Div": lambda a, b, context: a / b,
    "Max": lambda a, b, context: np.maximum(a, b),
    "Min": lambda a, b, context: np.minimum(a, b),
    "Pow": in_float64(lambda a, b, context: np.power(a, b)),
    "Neg": lambda x, context: -x,
    "Abs": lambda x, context: np.abs(x),
    "Sqrt": in_float64(lambda x, context: np.sqrt(x)),
    "Reciprocal": in_float64(lambda x, context: 1 / x),
    "Exp": in_float64(lambda x, context: np.exp(x)),
    "Log": in_float64(lambda x, context: np.log(x)),
    "Erf": in_float64(lambda x, context: np.vectorize(erf)(x)),
    "Tanh": in_float64(lambda x, context: np.tanh(x)),
    "Softplus": in_float64(lambda x, context: np.logaddexp(x, 0)),
    "Gelu": in_float64(float64_gelu),
    "Elu": in_float64(float64_elu),
    "LeakyRelu": float32_leaky_relu,
    "HardSwish": lambda x, context: x * np.clip(x * np.float32(1 / 6) + np.float32(0.5), np.float32(0), np.float32(1)),
}


def operand_constants(graph: Graph, node: Node) -> dict[str, Fraction] | None:
    """The scalar constants among a node's operands; None where one is no scalar, or where it divides by 0 or a variable,
    or is a power that is none of 1/2, 2 to 8."""
    found: dict[str, Fraction] = {}
    for name in operands(node):
        tensor = graph.tensors[name]
        if tensor.data is not None:
            if tensor.data.size != 1 or not np.isfinite(tensor.data).all():
                return None
            found[name] = constant_reals(tensor)[0]
    if node.op == "Div" and not found.get(node.inputs[1]):
        return None
    if node.op == "Pow" and found.get(node.inputs[1]) not in POWERS:
        return None
    return found


def operands(node: Node) -> list[str]:
    """The inputs that the function takes: bounds of a Clip are read apart."""
    return node.inputs[:1] if node.op == "Clip" else node.inputs


def exact_reals(graph: Graph, region: Sequence[Node]) -> dict[str, Reals]:
    """The 256 exact reals of every tensor that a region (DequantizeLinear first) makes."""
    kind = start_type(graph, region)
    step = Fraction(kind.scale[0])
    found = {region[0].outputs[0]: [(code - kind.zero_point[0]) * step for code in qlinear_tables.codes(kind)]}
    for node in region[1:]:
        constants = operand_constants(graph, node) or {}
        columns = [[constants[n]] * 256 if n in constants else found[n] for n in operands(node)]
        function = EXACT_FUNCTIONS[node.op]
        found[node.outputs[0]] = [function(*each, (node, graph)) for each in zip(*columns)]
    return found


def float32_reals(graph: Graph, region: Sequence[Node]) -> dict[str, Array]:
    """The same in float32, rounded after each node."""
    kind = start_type(graph, region)
    centred = np.array(qlinear_tables.codes(kind), np.float32) - np.float32(kind.zero_point[0])
    found = {region[0].outputs[0]: centred * np.float32(kind.scale[0])}
    for node in region[1:]:
        constants = operand_constants(graph, node) or {}
        columns = [np.float32(float(constants[n])) if n in constants else found[n] for n in operands(node)]
        found[node.outputs[0]] = FLOAT32_FUNCTIONS[node.op](*columns, (node, graph))
    return found


def start_type(graph: Graph, region: Sequence[Node]) -> Quantized:
    kind = graph.tensors[region[0].inputs[0]].type
    assert isinstance(kind, Quantized)
    return kind


def exact_codes(reals: Reals, target: TensorType) -> Array:
    """Codes of exact reals, one rounding, half to even."""
    assert isinstance(target, Quantized)
    unit = Fraction(target.scale[0])
    return np.array(
        [clip_to(target.dtype, nearest(real / unit) + target.zero_point[0]) for real in reals], target.dtype
    )


def float32_codes(reals: Array, target: TensorType) -> Array:
    assert isinstance(target, Quantized)
    return qlinear_tables.float32_codes(reals, target)
