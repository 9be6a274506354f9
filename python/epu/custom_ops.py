"""Custom operators: what a user registers, and what the registered functions are given (docs/custom_ops.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epu.errors import ConfigError, EpuError, UserError
from epu.graph import Graph, Node, Quantized, Tensor
from epu.names import near

if TYPE_CHECKING:
    from epu.custom_compose import Composer
    from epu.lowering.split import Splits

Array = NDArray[Any]

OP_TYPE, DOMAIN, VERSION = "QuadricCustomOp", "com.quadric", 1
OP_NAME, TENSORS = "op_name", "tensors"  # attributes of the node that are ours
OUTPUT_DTYPES = ("float32", "int8", "uint8")


@dataclass(frozen=True)
class CustomCall:
    """One node of a custom operator.

    ``inputs`` and ``output`` are typed tensors; while ``types`` runs, ``output`` is None and floats have no format yet.
    ``constants``: input index → the array as the ONNX model has it. ``rounding``: "exact" or "ort".
    """

    node: str
    op: str
    inputs: tuple[Tensor, ...]
    output: Tensor | None = None
    constants: Mapping[int, Array] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    rounding: str = "exact"

    def refuse(self, limit: str, found: object, remedy: str) -> UserError:
        """An error that names the node."""
        return UserError(f"ONNX node '{self.node}' ({self.op}): {limit}, found {found}. {remedy}.")

    def ask(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function of the user returns. Raises UserError, with the node's name, for whatever it raises."""
        try:
            return function(*arguments)
        except EpuError:
            raise
        except Exception as error:  # the user's code may raise anything
            found = f"{type(error).__name__}: {error}"
            raise self.refuse(f"{what} of the custom operator must not fail", found, "Correct it") from error

    @property
    def result(self) -> Tensor:
        """The output, once it has a type."""
        assert self.output is not None, f"{self.node}: the output has no type yet"
        return self.output


@dataclass(frozen=True)
class CustomOutput:
    """Shape and dtype ("float32", "int8", "uint8") of the output; ``quantized`` where an integer one knows its scale."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    quantized: Quantized | None = None


@dataclass(frozen=True)
class CustomKernel:
    """A kernel and what its parameters stand for.

    ``function``: a TIR PrimFunc, or a kernel of our families. ``operands``: array parameter → input index; ``constants`` and
    ``scalars``: values of other parameters. The array parameter that is left is the output.
    """

    function: Any
    operands: Mapping[str, int]
    constants: Mapping[str, Array] = field(default_factory=dict)
    scalars: Mapping[str, int] = field(default_factory=dict)
    splits: Splits | None = None


Types = Callable[[CustomCall], CustomOutput]
Reference = Callable[[CustomCall, list[NDArray[np.int64]]], Array]
Compose = Callable[["Composer", CustomCall], str]


@dataclass(frozen=True)
class CustomOp:
    """A registered operator; docs/custom_ops.md says what each function gets and returns."""

    name: str
    types: Types
    reference: Reference | None = None
    kernel: Callable[[CustomCall], CustomKernel] | None = None
    compose: Compose | None = None
    interval: Callable[[CustomCall], tuple[float, float]] | None = None
    frac: Callable[[CustomCall], int] | None = None
    macs: Callable[[CustomCall], int] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"custom_op: the name must be a text, found {self.name!r}. Give the node's op_name.")
        given = [form for form in ("kernel", "compose") if getattr(self, form) is not None]
        if len(given) != 1:
            raise ConfigError(
                f"custom operator '{self.name}': it must have one of kernel and compose, found "
                f"{' and '.join(given) or 'neither'}. Give one of them."
            )
        if self.kernel is not None and self.reference is None:
            raise ConfigError(
                f"custom operator '{self.name}': a kernel must have a reference, found none. Give the same integers in NumPy."
            )
        idle = [part for part in ("reference", "interval", "frac", "macs") if getattr(self, part) is not None]
        if self.compose is not None and idle:
            raise ConfigError(
                f"custom operator '{self.name}': a composition has what its operators have, found {' and '.join(idle)} beside "
                "it. Leave it out."
            )

    def output(self, call: CustomCall) -> CustomOutput:
        """What ``types`` says of the output, checked."""
        found = call.ask("types", self.types, call)
        if not isinstance(found, CustomOutput) or found.dtype not in OUTPUT_DTYPES:
            raise call.refuse(f"types must return a CustomOutput of {', '.join(OUTPUT_DTYPES)}", found, "Correct it")
        if not all(isinstance(size, (int, np.integer)) and size > 0 for size in found.shape):
            raise call.refuse("types must return a shape of positive integers", found.shape, "Correct it")
        if found.quantized is not None and found.quantized.dtype != found.dtype:
            raise call.refuse(f"the quantisation must be of {found.dtype}", found.quantized.dtype, "Correct types")
        return found


custom_op = CustomOp  # the name under which users register

Ops = Mapping[str, CustomOp]
_active: ContextVar[Ops | None] = ContextVar("epu_custom_ops", default=None)


@contextmanager
def using(ops: Ops) -> Iterator[None]:
    """Custom operators of the models that are imported within the block."""
    token = _active.set(ops)
    try:
        yield
    finally:
        _active.reset(token)


def find(name: str, node: str) -> CustomOp:
    """The operator of that name among those in use. Raises UserError where there is none."""
    ops = _active.get() or {}
    if name in ops:
        return ops[name]
    known = near(name, ops) if ops else "None is registered."
    raise UserError(
        f"ONNX node '{node}' ({OP_TYPE}): its op_name must be a registered custom operator, found '{name}'. {known} "
        "Pass its module: custom_ops=... or --custom-ops."
    )


def definition(node: Node) -> CustomOp:
    """The operator of a typed node."""
    op: CustomOp = node.attrs["custom"]
    return op


def call_of(node: Node, graph: Graph, rounding: str = "exact") -> CustomCall:
    """What the functions of the node's operator are given."""
    inputs = tuple(graph.tensors[name] for name in node.inputs)
    attrs, constants = node.attrs["attrs"], node.attrs["constants"]
    return CustomCall(
        node.name, definition(node).name, inputs, graph.tensors[node.outputs[0]], constants, attrs, rounding
    )


def not_schedulable(node: Node, error: Exception) -> UserError:
    """The scheduler or the emission could not take a user's kernel."""
    return UserError(
        f"ONNX node '{node.name}' ({definition(node).name}): the array must be able to run the kernel, found "
        f"{type(error).__name__}: {error}. Write it as docs/custom_ops.md says, or compose it."
    )
