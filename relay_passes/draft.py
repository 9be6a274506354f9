"""A typed node in the making: what a row says about a Relay call, before tensors have names and types."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Float, Integer, Quantized
from epu.relay_passes.relay_view import Const, Operand, Shape, Source, Step
from epu.simulator.errors import UnsupportedNode


@dataclass(frozen=True)
class Use:
    """One input of a draft: the operand, the quantisation the node reads it with, a constant's new layout."""

    operand: Operand | None
    want: Quantized | None = None
    data: NDArray[Any] | None = None
    shape: Shape | None = None


@dataclass(eq=False)
class Draft:
    """One node of the typed graph.

    ``root`` is the call whose value is the node's output. ``out`` is the output type where the node decides it (Integer:
    or what its readers take it for); None means float, or the quantisation of the first input. ``members`` are the calls
    the node stands for, ``covers`` the drafts it has swallowed (``fold_qdq``). ``moves_codes``: an integer output without
    ``out`` means what the first input's codes do.
    """

    op: str
    root: Step
    inputs: list[Use]
    attrs: dict[str, Any] = field(default_factory=dict)
    out: Quantized | Float | Integer | None = None
    members: list[Step] = field(default_factory=list)
    covers: list[Draft] = field(default_factory=list)
    moves_codes: bool = True

    @property
    def keeps_quantization(self) -> bool:
        """The output has the quantisation of the inputs."""
        return self.moves_codes and self.out is None and self.root.dtype in ("int8", "uint8", "int32")


def refuse(step: Step, limit: str, found: Any, remedy: str) -> UnsupportedNode:
    """Error that names the ONNX node of a Relay call."""
    return UnsupportedNode(f"{named(step)}: {limit}, found {found}. {remedy}.")


def named(step: Step) -> str:
    """The ONNX node of a Relay call for a message; a call written by hand has none."""
    return f"ONNX node '{step.span}' ({step.op})" if step.span else f"Relay call {step.op}"


def const_array(step: Step, operand: Operand, what: str) -> NDArray[Any]:
    """Array of an operand that must be a constant."""
    if not isinstance(operand, Const):
        remedy = "Bind the parameters (params=...) and fold constants first"
        raise refuse(step, f"the {what} must be a constant", _kind(operand), remedy)
    return operand.data


def quantized(step: Step, dtype: str, scale: Operand, zero_point: Operand, axis: int | None) -> Quantized:
    """Quantized type of constant scale and zero point; ``axis`` counts where there are several scales."""
    scales = np.asarray(const_array(step, scale, "scale"), np.float32).reshape(-1)
    zeros = np.asarray(const_array(step, zero_point, "zero point")).reshape(-1)
    zeros = np.broadcast_to(zeros, scales.shape) if zeros.size == 1 else zeros
    if zeros.shape != scales.shape:
        raise refuse(step, f"there must be {scales.size} zero points", zeros.size, "Give one per scale")
    channel = axis if scales.size > 1 else None
    return Quantized(dtype, tuple(map(float, scales)), tuple(map(int, zeros)), channel)


def _kind(operand: Operand) -> str:
    return f"the parameter '{operand.name}'" if isinstance(operand, Source) else "a computed tensor"
