"""Ranges of a model's real tensors on given inputs, as ONNX's reference evaluator computes them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Set
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from epu.errors import UserError
from epu.onnx_shapes import graph_inputs
from epu.ranges import Ranges

Arrays = Mapping[str, NDArray[Any]]

RELATIVE = {"Log": (0,), "Reciprocal": (0,), "Div": (1,)}  # operands whose relative error becomes the result's error
SPAN_BITS = 20  # of a word of 31: what is left keeps the least value to 2**-10


def observe(model: onnx.ModelProto, feeds: Arrays) -> Ranges:
    """Lowest and highest value of each real tensor for these inputs.

    Raises UserError for NaN or infinity, for an operand that one fixed-point format cannot hold to 2**-10, and for a
    model that the reference evaluator cannot run.
    """
    values = _reference(model, {value.name: feeds[value.name] for value in graph_inputs(model)})
    reals = {name: v for name, v in values.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f"}
    ranges = {name: _range(name, value) for name, value in reals.items()}
    for node in model.graph.node:
        for index in RELATIVE.get(node.op_type, ()):
            _require_narrow(node, node.input[index], reals)
    return ranges


def require_finite(model: onnx.ModelProto, feeds: Arrays, names: Set[str]) -> None:
    """Raise UserError where one of these tensors holds NaN or infinity for these inputs."""
    values = _reference(model, {value.name: feeds[value.name] for value in graph_inputs(model)})
    for name in sorted(names):
        _range(name, np.asarray(values[name]))


def _reference(model: onnx.ModelProto, feeds: Arrays) -> dict[str, Any]:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found: Any = ReferenceEvaluator(model).run(None, dict(feeds), intermediate=True)
    except Exception as error:  # whatever the reference raises: without it there are no ranges
        raise UserError(
            f"the model: its ranges must come from ONNX's reference evaluator, found {type(error).__name__}: "
            f"{str(error)[:100]}. Calibrate it with epu quantize, and compile it with ChimeraJob."
        ) from error
    return dict(found)


def _range(name: str, values: NDArray[Any]) -> tuple[float, float]:
    if not np.isfinite(values).all():
        raise UserError(
            f"tensor '{name}': fixed point has finite values only, found NaN or infinity. Bound the tensor."
        )
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)


def _require_narrow(node: onnx.NodeProto, name: str, reals: Arrays) -> None:
    sizes = np.abs(reals[name][reals[name] != 0].astype(np.float64)) if name in reals else np.empty(0)
    span = float(np.log2(sizes.max() / sizes.min())) if sizes.size else 0.0
    if span > SPAN_BITS:
        raise UserError(
            f"ONNX node '{node.name or node.output[0]}' ({node.op_type}): the values of an operand must span at most "
            f"{SPAN_BITS} bits, found {span:.0f} in '{name}'. Subtract the maximum before an exponential, or clip."
        )
