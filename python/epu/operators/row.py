"""What an operator row is made of, and how a row reads its node's types and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.constants import integer_range
from epu.graph import Fixed, Graph, Integer, Node, Quantized, Tensor

Array = NDArray[Any]
Ints = NDArray[np.int64]
Values = Mapping[str, Array]
Interval = tuple[float, float]
Check = Callable[[Node, Graph], str | None]
Reference = Callable[[Node, Graph, Values, str], list[Array]]
Inner = Callable[[Node, Graph, Values, str], dict[str, Array]]
Intervals = Callable[[Node, Graph], dict[str, Interval]]
Formats = Callable[[Node, Graph], dict[str, int]]

FIXED, MASK, CODES = ("FixedPoint32",), ("mask",), ("int8", "uint8")
TYPES = (*CODES, *FIXED, *MASK)  # of what a program computes with

EXACT, ORT = "exact", "ort"  # the two roundings


@dataclass(frozen=True)
class Limit:
    """One limit of an operator: the sentence of the manual, and a check that returns what breaks it.

    ``types``: those that a limit on types leaves of the data that the operator reads (see ``TYPES``).
    """

    sentence: str
    check: Check
    types: tuple[str, ...] = ()


def magnitude(of: Interval) -> float:
    """The largest absolute value."""
    return max(abs(of[0]), abs(of[1]))


def spread(of: Interval) -> float:
    """Room for differences of two values too."""
    return max(magnitude(of), of[1] - of[0])


def no_macs(node: Node, graph: Graph) -> int:
    return 0


ANY_COST = 64  # of fraction bits


@dataclass(frozen=True)
class OwnBound:
    """What a function gives whatever its input, and the fraction bits that its outputs may lose for that.

    A function that is no more exact than the last of the bits that its bound leaves may lose any number.
    """

    interval: Interval
    cost: int = ANY_COST


@dataclass(frozen=True)
class Operator:
    """One row. ``reference`` computes the outputs in raw integers (docs/arithmetic.md); ``inner`` the tensors that a
    recognised group covers; ``intervals`` bounds the outputs and the covered tensors from the inputs' ranges.

    ``formats`` decides fraction bits that do not follow from a tensor's own range. ``input_size``: the magnitude that the
    fraction bits of float inputs must leave room for. ``own_bound``: what replaces a calibrated range of the output.
    ``macs`` counts int8 multiply-accumulates.
    """

    name: str
    family: str
    limits: tuple[Limit, ...]
    reference: Reference
    intervals: Intervals | None = None
    inner: Inner | None = None
    formats: Formats | None = None
    input_size: Callable[[Interval], float] = magnitude
    own_bound: OwnBound | None = None
    macs: Callable[[Node, Graph], int] = no_macs

    @property
    def types(self) -> tuple[str, ...]:
        """What the data that it reads may be."""
        narrowed = [limit.types for limit in self.limits if limit.types]
        return narrowed[0] if narrowed else TYPES


def input_tensor(node: Node, graph: Graph, index: int) -> Tensor | None:
    """The tensor of an input; None where the optional input is absent."""
    name = node.inputs[index] if index < len(node.inputs) else ""
    return graph.tensors[name] if name else None


def required(node: Node, graph: Graph, index: int) -> Tensor:
    tensor = input_tensor(node, graph, index)
    assert tensor is not None, f"{node.name}: input {index} is absent"
    return tensor


def output_tensor(node: Node, graph: Graph, index: int = 0) -> Tensor:
    return graph.tensors[node.outputs[index]]


def quantized(tensor: Tensor) -> Quantized:
    assert isinstance(tensor.type, Quantized), f"{tensor.name} is {tensor.type}, not quantized"
    return tensor.type


def frac(tensor: Tensor) -> int:
    """Fraction bits of a Fixed tensor."""
    assert isinstance(tensor.type, Fixed), f"{tensor.name} is {tensor.type}, not fixed point"
    return tensor.type.frac


def value(node: Node, values: Values, index: int) -> Ints:
    """Raw integers of an input as int64."""
    return np.asarray(values[node.inputs[index]], np.int64)


def interval(tensor: Tensor) -> Interval:
    """What reals a tensor can hold: its range, or all codes of its quantized type."""
    if tensor.range is not None:
        return tensor.range
    if isinstance(tensor.type, Quantized):
        return quantized_interval(tensor.type)
    raise AssertionError(f"{tensor.name} has no range yet")


def quantized_interval(kind: Quantized) -> Interval:
    """Reals of the lowest and the highest code, over all channels."""
    low, high = integer_range(kind.dtype)
    ends = [(code - zero) * scale for scale, zero in zip(kind.scale, kind.zero_point) for code in (low, high)]
    return min(ends), max(ends)


def scale32(kind: Quantized) -> NDArray[np.float32]:
    """Scales as float32: shape (), or (channels,)."""
    scales = np.asarray(kind.scale, np.float32)
    return scales if kind.axis is not None else scales[0]


def zero_point(kind: Quantized, rank: int) -> Array:
    """Zero points as int64, shaped to broadcast along the type's axis of a tensor of that rank."""
    points = np.asarray(kind.zero_point, np.int64)
    if kind.axis is None:
        return points[0].reshape(())
    return along(points, kind.axis, rank)


def along(vector: Array, axis: int, rank: int) -> Array:
    """A vector shaped to broadcast along one axis; a scalar has none."""
    if rank == 0:
        return vector.reshape(())
    shape = [1] * rank
    shape[axis] = -1
    return vector.reshape(shape)


def centred(node: Node, graph: Graph, values: Values, index: int) -> Ints:
    """``q - zero_point`` of an input."""
    tensor = required(node, graph, index)
    raw = value(node, values, index)
    result: Ints = raw - zero_point(quantized(tensor), raw.ndim)
    return result


def same_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    """Outputs with the interval of the first input; nothing for plain integers and masks."""
    tensor = required(node, graph, 0)
    return {} if isinstance(tensor.type, Integer) else {node.outputs[0]: interval(tensor)}


def same_format(node: Node, graph: Graph) -> dict[str, int]:
    """Outputs with the fraction bits of the first input."""
    kind = required(node, graph, 0).type
    return dict.fromkeys(node.outputs, kind.frac) if isinstance(kind, Fixed) else {}


def is_constant(tensor: Tensor) -> bool:
    return tensor.data is not None


def constant_reals(tensor: Tensor) -> list[Fraction]:
    """The reals that a float or fixed-point constant holds, exactly."""
    assert tensor.data is not None, f"{tensor.name} is not constant"
    unit = Fraction(1, 2) ** tensor.type.frac if isinstance(tensor.type, Fixed) else Fraction(1)
    return [Fraction(each) * unit for each in tensor.data.ravel().tolist()]


def ints_attribute(node: Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """A list-of-integers attribute; the default where absent or empty."""
    return tuple(int(each) for each in node.attrs.get(name) or default)


# ---- limits that several operators share


def found_type(tensor: Tensor) -> str:
    kind = tensor.type
    if isinstance(kind, (Quantized, Integer)):
        return f"{kind.dtype} '{tensor.name}'"
    return f"{type(kind).__name__.lower()} '{tensor.name}'"


def int8_inputs(*indices: int) -> Limit:
    """The inputs are int8 or uint8."""

    def check(node: Node, graph: Graph) -> str | None:
        for index in indices:
            tensor = input_tensor(node, graph, index)
            if tensor is not None and not is_byte(tensor):
                return found_type(tensor)
        return None

    return Limit("inputs are quantized int8 or uint8", check, CODES)


def is_byte(tensor: Tensor) -> bool:
    return isinstance(tensor.type, Quantized) and tensor.type.dtype in ("int8", "uint8")


def check_int8_output(node: Node, graph: Graph) -> str | None:
    tensor = output_tensor(node, graph)
    return None if is_byte(tensor) else found_type(tensor)


def check_per_tensor(node: Node, graph: Graph) -> str | None:
    names = [name for name in (*node.inputs, *node.outputs) if name]
    kinds = [(name, graph.tensors[name].type) for name in names]
    found = [f"axis {k.axis} on '{name}'" for name, k in kinds if isinstance(k, Quantized) and k.axis is not None]
    return found[0] if found else None


def check_fixed(node: Node, graph: Graph) -> str | None:
    names = [name for name in (*node.inputs, *node.outputs) if name]
    wrong = [graph.tensors[n] for n in names if isinstance(graph.tensors[n].type, (Quantized, Integer))]
    return found_type(wrong[0]) if wrong else None


def check_finer_output(node: Node, graph: Graph) -> str | None:
    out = output_tensor(node, graph).type
    if not isinstance(out, Fixed):
        return None
    for name in node.inputs:
        kind = graph.tensors[name].type
        if isinstance(kind, Fixed) and out.frac - kind.frac > MOST_LEFT_SHIFT:
            return f"{kind.frac} of '{name}' for {out.frac}"
    return None


def check_whole_units(node: Node, graph: Graph) -> str | None:
    """Curves that end within a few units of 0 need inputs that tell these apart."""
    bits = getattr(required(node, graph, 0).type, "frac", 0)
    return None if bits >= 0 else str(bits)


MOST_LEFT_SHIFT = 31  # of an int32 in 64 bits
FINER_OUTPUT = Limit("the output has at most 31 fraction bits more than an input", check_finer_output)
WHOLE_UNITS = Limit("the input has at least 0 fraction bits", check_whole_units)
INT8_OUTPUT = Limit("the output is quantized int8 or uint8", check_int8_output)
PER_TENSOR = Limit("scales and zero points are per tensor", check_per_tensor)
FLOAT_TENSORS = Limit("inputs and outputs are float", check_fixed, FIXED)
