"""The arbiter between ORT and ISS on float nodes: the node in float64 on ORT's own inputs.

ORT adds in float32, one element after another: its mean over 1152 elements is 3e-6 off where the ISS is 3e-8 off.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from epu.exact_functions import float64_function
from epu.metrics import psnr_db
from epu.observed import Tensors

FAILURES = (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError, KeyError)
STANDARD = ("", "ai.onnx")


class ModelNodes:
    """Nodes of a model by the tensors they make, its constants, its opset."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._arrays: dict[str, NDArray[Any]] = {}
        self.by_output = {name: node for node in model.graph.node for name in node.output if name}

    @cached_property
    def _constants(self) -> Mapping[str, onnx.TensorProto]:
        return {each.name: each for each in self._model.graph.initializer}

    @cached_property
    def opset(self) -> int:
        return next((each.version for each in self._model.opset_import if each.domain in STANDARD), 1)

    def constant(self, name: str) -> NDArray[Any] | None:
        """An initializer's array; None for a variable."""
        if name not in self._arrays and name in self._constants:
            self._arrays[name] = onnx.numpy_helper.to_array(self._constants[name])
        return self._arrays.get(name)

    def in_float64(self, tensor: str, feeds: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
        """A node output in float64 from its operands; None where it has no float64 form."""
        node = self.by_output[tensor]
        reals = {name: _widened(array) for name, array in feeds.items()}
        try:
            with np.errstate(all="ignore"):  # 1 / 0 is what ORT was given
                value = self._computed(node, reals, list(node.output).index(tensor))
        except FAILURES:  # an operator that the reference lacks, or that insists on float32
            return None
        return None if value.dtype == np.float32 else value

    def _computed(self, node: onnx.NodeProto, reals: Mapping[str, NDArray[Any]], index: int) -> NDArray[Any]:
        function = float64_function(node)
        if function is not None and index == 0:
            return np.asarray(function(node, [reals.get(name) for name in node.input]))
        if node.domain not in STANDARD:
            raise NotImplementedError(node.domain)
        results: Any = ReferenceEvaluator(node, opsets={"": self.opset}).run(None, dict(reals))
        return np.asarray(results[index])


class ExactNodes:
    """Float node outputs of a model in float64, computed on demand from ORT's tensors."""

    def __init__(self, model: onnx.ModelProto, ort: Tensors) -> None:
        self.nodes = ModelNodes(model)
        self._ort = ort
        self._known: dict[str, NDArray[np.float64] | None] = {}

    def value(self, tensor: str) -> NDArray[np.float64] | None:
        """The tensor in float64; None where the node has no float64 form."""
        if tensor not in self._known:
            self._known[tensor] = self._evaluate(tensor)
        return self._known[tensor]

    def _evaluate(self, tensor: str) -> NDArray[np.float64] | None:
        node = self.nodes.by_output[tensor]
        feeds = {name: self._operand(name) for name in node.input if name}
        value = self.nodes.in_float64(tensor, feeds)
        if value is None or value.dtype != np.float64:
            return None
        return value if tensor not in self._ort or value.shape == self._ort[tensor].shape else None

    def _operand(self, name: str) -> NDArray[Any]:
        known = self.nodes.constant(name)
        return self._ort[name] if known is None else known


def ort_is_further(ort: NDArray[Any], iss: NDArray[np.float64], exact: NDArray[np.float64]) -> bool:
    """Whether ORT's own error against ``exact`` is larger than that of the ISS; what is not finite judges nobody."""
    if not np.isfinite(exact).all():
        return False
    return _rms(ort - exact) > _rms(iss - exact)


def psnr_against(exact: NDArray[np.float64], iss: NDArray[np.float64]) -> float:
    """PSNR of the ISS against the exact value."""
    return psnr_db(float(np.abs(exact).max(initial=0.0)), _rms(iss - exact))


def _widened(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _rms(error: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(error)))) if error.size else 0.0
