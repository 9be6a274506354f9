"""Operators that keep integers times scales what they are: products, sums, means, moves of quantised tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from epu import exact_windows as windows
from epu.exact_functions import float64_function
from epu.exact_node import ModelNodes
from epu.reasons_terms import Array, Part, Reals, Terms, mapped, multiplied, single

Operands = Sequence[Any]  # Terms, arrays, or None where absent
Rule = Callable[[onnx.NodeProto, Operands, int], "Terms | None"]


def as_terms(node: onnx.NodeProto, operands: Operands, nodes: ModelNodes) -> Terms | None:
    """The node on integers and scales; None where it has to be computed in float64."""
    rule = RULES.get(node.op_type)
    if rule is None or not any(isinstance(each, tuple) for each in operands):
        return None
    return rule(node, operands, nodes.opset)


def reference(node: onnx.NodeProto, opset: int, *operands: Any) -> Reals:
    """The first output in float64; the node's operands by position."""
    function = float64_function(node)
    if function is not None:
        return np.asarray(function(node, operands), np.float64)
    renamed = onnx.NodeProto()
    renamed.CopyFrom(node)
    renamed.input[:] = [f"i{k}" if each is not None else "" for k, each in enumerate(operands)]
    feeds = {f"i{k}": each for k, each in enumerate(operands) if each is not None}
    results: Any = ReferenceEvaluator(renamed, opsets={"": max(opset, 1)}).run(None, feeds)
    return np.asarray(results[0], np.float64)


def plain_node(op: str, node: onnx.NodeProto, drop: tuple[str, ...] = ()) -> onnx.NodeProto:
    """A standard node with the attributes of ``node``."""
    found = onnx.helper.make_node(op, ["x"], ["y"])
    found.attribute.extend(each for each in node.attribute if each.name not in drop)
    return found


def conv(node: onnx.NodeProto, operands: Operands, opset: int) -> Terms | None:
    return _product(plain_node("Conv", node), operands, opset, lambda scale, rank: _second_axis(scale, rank))


def conv_transpose(node: onnx.NodeProto, operands: Operands, opset: int) -> Terms | None:
    if windows.attributes(node).get("group", 1) != 1:
        return None
    return _product(plain_node("ConvTranspose", node), operands, opset, lambda scale, rank: _second_axis(scale, rank))


def matmul(node: onnx.NodeProto, operands: Operands, opset: int) -> Terms | None:
    a, b = (single(each) for each in operands[:2])
    if a is None or b is None:
        return None
    return multiplied(a, b, lambda x, y: np.asarray(np.matmul(x, y)), b.factors[0], a.ints.shape[-1])


def gemm(node: onnx.NodeProto, operands: Operands, opset: int) -> Terms | None:
    given = windows.attributes(node)
    a, b = (single(each) for each in operands[:2])
    if a is None or b is None or given.get("beta", 1.0) != 1.0:
        return None
    turn_a, turn_b = given.get("transA", 0), given.get("transB", 0)
    factor = b.factors[0].T if turn_b else b.factors[0]
    alpha = (np.asarray(given["alpha"], np.float32),) if given.get("alpha", 1.0) != 1.0 else ()

    def product(x: Reals, y: Reals) -> Reals:
        return np.asarray((x.T if turn_a else x) @ (y.T if turn_b else y))

    bias = _bias(operands)
    depth = a.ints.shape[0 if turn_a else 1]
    return multiplied(a, b, product, factor, depth, bias, alpha) if bias is not _UNKNOWN else None


def mul(node: onnx.NodeProto, operands: Operands, opset: int) -> Terms | None:
    a, b = (single(each) for each in operands)
    if a is None or b is None or any(each.size != 1 for each in (*a.factors, *b.factors)):
        return None
    return multiplied(a, b, lambda x, y: np.asarray(x * y), b.factors[0], 1)


def add(node: onnx.NodeProto, operands: Operands, opset: int) -> Terms | None:
    """Two quantised tensors side by side; their common grid is the quotient's business."""
    parts = [single(each) for each in operands]
    if any(part is None or any(factor.size != 1 for factor in part.factors) for part in parts):
        return None
    shape = np.broadcast_shapes(*(part.ints.shape for part in parts if part))
    return tuple(_spread(part, shape) for part in parts if part)


def average(node: onnx.NodeProto, operands: Operands, opset: int) -> Terms | None:
    part = single(operands[0])
    if part is None or any(factor.size != 1 for factor in part.factors):
        return None
    if node.op_type.endswith("GlobalAveragePool"):
        axes = tuple(range(2, part.ints.ndim))
        count = np.array(float(prod(part.ints.shape[2:])))
        return _mean(part, lambda x: np.asarray(x.sum(axis=axes, keepdims=True)), count)
    if not windows.plain_windows(node):
        return None
    return _mean(part, lambda x: windows.sums(node, x), windows.counts(node, part.ints.shape))


def relu(node: onnx.NodeProto, operands: Operands, opset: int) -> Terms | None:
    return _mapped(operands, lambda x: np.asarray(np.maximum(x, 0.0)))


def max_pool(node: onnx.NodeProto, operands: Operands, opset: int) -> Terms | None:
    if not windows.plain_windows(node):
        return None
    return _mapped(operands, lambda x: windows.maxima(node, x), scalar=True)


def move(node: onnx.NodeProto, operands: Operands, opset: int) -> Terms | None:
    return _mapped(operands, lambda x: reference(node, opset, x, *operands[1:]))


def resize(node: onnx.NodeProto, operands: Operands, opset: int) -> Terms | None:
    if windows.attributes(node).get("mode", b"nearest") == b"nearest":
        return move(node, operands, opset)
    return _mapped(operands, lambda x: reference(node, opset, x, *operands[1:]), scalar=True)


def extreme(node: onnx.NodeProto, operands: Operands, opset: int) -> Terms | None:
    return _mapped(operands, lambda x: reference(node, opset, x, *operands[1:]), scalar=True)


def concat(node: onnx.NodeProto, operands: Operands, opset: int) -> Terms | None:
    parts = [single(each) for each in operands]
    if any(part is None or len(part.factors) != 1 for part in parts):
        return None
    known = [part for part in parts if part]
    axis = windows.attributes(node)["axis"]
    factors = [np.broadcast_to(part.factors[0], part.ints.shape) for part in known]
    return (
        Part(
            np.concatenate([part.ints for part in known], axis),
            (np.concatenate(factors, axis),),
            lambda: np.concatenate([part.magnitude() for part in known], axis),
        ),
    )


_UNKNOWN = np.zeros(0)


def _bias(operands: Operands) -> Reals | None:
    """Integers of a bias in units of the product; ``_UNKNOWN`` for a float bias."""
    bias = operands[2] if len(operands) > 2 else None
    if bias is None:
        return None
    part = single(bias)
    if part is not None:
        return part.ints
    return np.asarray(bias, np.float64) if bias.dtype.kind == "i" else _UNKNOWN


def _product(
    node: onnx.NodeProto, operands: Operands, opset: int, place: Callable[[Array, int], Array]
) -> Terms | None:
    """Conv and ConvTranspose of quantised data and weights, with an int32 bias in units of the product or without."""
    x, w, bias = single(operands[0]), single(operands[1]), _bias(operands)
    if x is None or w is None or bias is _UNKNOWN:
        return None
    rank = x.ints.ndim
    shaped = None if bias is None else bias.reshape(1, -1, *[1] * (rank - 2))
    return multiplied(
        x, w, lambda a, b: reference(node, opset, a, b), place(w.factors[0], rank), prod(w.ints.shape[1:]), shaped
    )


def _second_axis(scale: Array, rank: int) -> Array:
    return scale if scale.size == 1 else scale.reshape(1, -1, *[1] * (rank - 2))


def _spread(part: Part, shape: tuple[int, ...]) -> Part:
    def spread(array: Array) -> Array:
        return np.asarray(np.broadcast_to(array, shape))

    return replace(part, ints=spread(part.ints), magnitude=lambda: spread(part.magnitude()))


def _mean(part: Part, total: Callable[[Reals], Reals], count: NDArray[Any]) -> Terms:
    depth = int(np.max(count))
    return (
        replace(
            part,
            ints=total(part.ints),
            count=count,
            magnitude=lambda: total(part.magnitude()),
            combined=True,
            depth=depth,
        ),
    )


def _mapped(operands: Operands, function: Callable[[Reals], Reals], scalar: bool = False) -> Terms | None:
    part = single(operands[0])
    if part is None or any(isinstance(each, tuple) for each in operands[1:]):
        return None
    if scalar and any(each.size != 1 for each in (*part.factors, part.count)):
        return None
    return mapped(part, function)


MOVES = (
    *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Slice", "Gather", "Expand", "Tile"),
    *("DepthToSpace", "SpaceToDepth", "Dropout"),
)
RULES: dict[str, Rule] = {
    **dict.fromkeys(MOVES, move),
    "Add": add,
    "AveragePool": average,
    "Concat": concat,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Gemm": gemm,
    "GlobalAveragePool": average,
    "MatMul": matmul,
    "MaxPool": max_pool,
    "Mul": mul,
    "ReduceMax": extreme,
    "ReduceMin": extreme,
    "Relu": relu,
    "Resize": resize,
}
