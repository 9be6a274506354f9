"""A convolution or matrix product among Relay calls, with the bias, requantisation and reshape that belong to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from epu.relay_passes.relay_view import Operand, Step, same_node, same_onnx_node

BIAS = ("nn.bias_add", "add")
PRODUCTS = {"nn.dense", "nn.matmul", "nn.batch_matmul", "qnn.dense", "qnn.batch_matmul"}
TRANSPOSED_CONVS = {"nn.conv1d_transpose", "nn.conv2d_transpose"}
CONVS = {"nn.conv1d", "nn.conv2d", "qnn.conv2d", *TRANSPOSED_CONVS}


@dataclass(frozen=True)
class Requantize:
    """int32 → int8: one qnn.requantize, or a dequantize and a quantize; a dequantize alone has no ``out_scale``."""

    step: Step
    in_scale: Operand
    in_zero: Operand
    out_scale: Operand | None = None
    out_zero: Operand | None = None


@dataclass
class Linear:
    """A product or convolution with what surrounds it: optional bias, optional requantisation, outer reshape."""

    root: Step
    core: Step
    members: list[Step]
    bias: Operand | None = None
    requantize: Requantize | None = None

    @property
    def is_quantized(self) -> bool:
        return self.core.op.startswith("qnn.")


def linear_group(step: Step) -> list[Step]:
    """The calls that belong to one linear operation ending at ``step``, at least ``step`` itself."""
    found = find_linear(step)
    return [step] if found is None else found.members


def find_linear(step: Step) -> Linear | None:
    """Peel reshape, requantize and bias off ``step``, outermost first."""
    members, inner = [step], step
    requantize = bias = None
    if inner.op == "reshape" and _belongs(inner, same_onnx_node):
        inner = _descend(inner, members)
    if inner.op in ("qnn.requantize", "qnn.quantize") and isinstance(inner.args[0], Step):
        requantize, inner = _requantize(inner, members)
    elif inner.op == "qnn.dequantize" and inner.args[0].dtype == "int32" and _belongs(inner, same_node):
        requantize, inner = Requantize(inner, *inner.args[1:]), _descend(inner, members)
    if inner.op in BIAS and _belongs(inner, same_node) and _is_bias(inner):
        bias = inner.args[1]
        inner = _descend(inner, members)
    if inner.op not in PRODUCTS | CONVS:
        return None
    return Linear(step, inner, members, bias, requantize)


def _requantize(step: Step, members: list[Step]) -> tuple[Requantize | None, Step]:
    """The requantisation that ends at ``step`` and its operand; None for a quantize of something else."""
    inner = step.args[0]
    assert isinstance(inner, Step)
    if step.op == "qnn.requantize":
        members.append(inner)
        return Requantize(step, *step.args[1:]), inner
    if inner.op != "qnn.dequantize" or inner.args[0].dtype != "int32" or not isinstance(inner.args[0], Step):
        return None, step
    members.extend((inner, inner.args[0]))
    return Requantize(step, *inner.args[1:], *step.args[1:]), inner.args[0]


def _belongs(step: Step, related: Any) -> bool:
    return isinstance(step.args[0], Step) and related(step, step.args[0])


def _is_bias(step: Step) -> bool:
    """An add is a bias where it lies in one ONNX node with the product, or is an int32 constant."""
    inner = step.args[0]
    assert isinstance(inner, Step)
    if step.op == "nn.bias_add":
        return inner.op in PRODUCTS | CONVS
    flat = sum(size > 1 for size in step.args[1].shape) <= 1 and step.shape == inner.shape
    return inner.op in ("nn.dense", "qnn.dense") and flat and (bool(step.span) or inner.op == "qnn.dense")


def _descend(step: Step, members: list[Step]) -> Step:
    inner = step.args[0]
    assert isinstance(inner, Step)
    members.append(inner)
    return inner
