"""The arbiter between ORT and ISS on float nodes: the node in float64 on ORT's own inputs.

ORT adds in float32, one element after another: its mean over 1152 elements is 3e-6 off where the ISS is 3e-8 off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from epu.metrics import psnr_db
from epu.observed import Tensors

FAILURES = (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError, KeyError)


class ExactNodes:
    """Float node outputs of a model in float64, computed on demand from ORT's tensors."""

    def __init__(self, model: onnx.ModelProto, ort: Tensors) -> None:
        self._nodes = {name: node for node in model.graph.node for name in node.output if name}
        self._constants = {each.name: each for each in model.graph.initializer}
        self._opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 1)
        self._ort = ort
        self._known: dict[str, NDArray[np.float64] | None] = {}

    def value(self, tensor: str) -> NDArray[np.float64] | None:
        """The tensor in float64; None where the node has no float64 form."""
        if tensor not in self._known:
            self._known[tensor] = self._evaluate(tensor)
        return self._known[tensor]

    def _evaluate(self, tensor: str) -> NDArray[np.float64] | None:
        node = self._nodes[tensor]
        if node.domain not in ("", "ai.onnx"):
            return None
        feeds = {name: self._operand(name) for name in node.input if name}
        try:
            results: Any = ReferenceEvaluator(node, opsets={"": self._opset}).run(None, feeds)
        except FAILURES:  # an operator that the reference lacks, or that insists on float32
            return None
        value = np.asarray(results[list(node.output).index(tensor)])
        return value if value.dtype == np.float64 else None

    def _operand(self, name: str) -> NDArray[Any]:
        known = self._constants.get(name)
        value = self._ort[name] if known is None else onnx.numpy_helper.to_array(known)
        return value.astype(np.float64) if value.dtype == np.float32 else value


def ort_is_further(ort: NDArray[Any], iss: NDArray[np.float64], exact: NDArray[np.float64]) -> bool:
    """Whether ORT's own error against ``exact`` is larger than that of the ISS."""
    return _rms(ort - exact) > _rms(iss - exact)


def psnr_against(exact: NDArray[np.float64], iss: NDArray[np.float64]) -> float:
    """PSNR of the ISS against the exact value."""
    return psnr_db(float(np.abs(exact).max(initial=0.0)), _rms(iss - exact))


def _rms(error: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(error)))) if error.size else 0.0
