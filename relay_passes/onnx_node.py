"""One ONNX node during import: its values, attributes, span and errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.relay_passes.tvm_relay import relay, span_of
from epu.simulator.errors import UnsupportedNode

Shape = tuple[int, ...]

INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
DTYPES = frozenset({"bool", "float16", "float32", "float64", *INTEGERS})  # what Relay and NumPy both have


@dataclass(frozen=True)
class Value:
    """One ONNX tensor: static shape and dtype, the Relay expression or the constant it is.

    ``late`` computes the values of an expression of constants that stays one (dequantized weights), for inputs that must
    be constants.
    """

    shape: Shape
    dtype: str
    relay_expr: Any = None
    data: NDArray[Any] | None = None
    name: str = ""
    late: Callable[[], NDArray[Any]] | None = None

    @cached_property
    def expr(self) -> Any:
        """Relay expression; a constant is built on first use and carries its ONNX name as span."""
        if self.data is None:
            return self.relay_expr
        return relay.const(self.data, self.dtype, span_of(self.name) if self.name else None)

    @property
    def is_known(self) -> bool:
        """Whether no input of the model decides its values."""
        return self.data is not None or self.late is not None

    @cached_property
    def known(self) -> NDArray[Any] | None:
        """The values where they are known."""
        return self.late() if self.late is not None else self.data

    @property
    def rank(self) -> int:
        return len(self.shape)

    def map_data(self, data: NDArray[Any]) -> Value:
        """The same constant, laid out another way."""
        return Value(data.shape, self.dtype, None, np.asarray(data, order="C"), self.name)


def constant(data: NDArray[Any], name: str = "") -> Value:
    """Constant value of an array."""
    array = np.asarray(data)
    return Value(tuple(array.shape), str(array.dtype), None, array, name)


@dataclass(frozen=True)
class OnnxNode:
    """What a converter sees: ``inputs`` (None for an absent optional one), ``attributes``, ``opset`` of its domain."""

    name: str
    op_type: str
    inputs: list[Value | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 0
    num_outputs: int = 1
    domain: str = ""

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def text(self, name: str, default: str) -> str:
        """String attribute."""
        value = self.attr(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def input(self, index: int) -> Value:
        """Input that must be present."""
        if not self.has(index):
            raise self.refuse(f"input {index} must be present", "nothing", "Repair the model")
        value = self.inputs[index]
        assert value is not None
        return value

    def data(self, index: int) -> NDArray[Any]:
        """Input that must be a constant, as an array."""
        value = self.input(index).known
        if value is None:
            remedy = "Fold it into an initializer (onnxsim, or fixed input shapes)"
            raise self.refuse(f"input {index} must be a constant", "a computed tensor", remedy)
        return value

    def emit(self, call: Any, output: int = 0) -> Any:
        """The same Relay call, carrying this node's name (and which output it makes) as span."""
        return relay.Call(call.op, call.args, call.attrs, call.type_args, span_of(self.name, output))

    def result(self, expr: Any, shape: Shape, dtype: str | None = None) -> Value:
        """Output value of this node."""
        return Value(tuple(int(d) for d in shape), dtype or self.input(0).dtype, expr)

    def require_dtype(self, dtype: str) -> None:
        """Refuse a type that Relay does not have."""
        if dtype not in DTYPES:
            raise self.refuse("tensors must be bool, integers of 8 to 64 bits or floats", dtype, "Cast it on the host")

    def refuse(self, limit: str, found: Any, remedy: str) -> UnsupportedNode:
        """Error that names this node."""
        return UnsupportedNode(f"ONNX node '{self.name}' ({self.op_type}): {limit}, found {found}. {remedy}.")
