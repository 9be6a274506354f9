"""Dequantize → float op → Quantize becomes the quantised op: drafts → drafts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Quantized
from epu.relay_passes.draft import Draft, Use
from epu.relay_passes.relay_view import Const, Operand, Step


def fold_qdq(drafts: list[Draft], outputs: Sequence[Operand]) -> list[Draft]:
    """DequantizeLinear(x…) → op → QuantizeLinear becomes QLinear-op where the float value has no other reader.

    The quantised draft takes the Quantize's place and covers what it replaced. A Dequantize with other readers stays
    for those. Add, Mul, Concat, Conv, MatMul, Gemm, AveragePool and GlobalAveragePool have a quantised form; layout operations
    and MaxPool work on codes where the scales before and after are equal; the others stay.
    """
    producers = {draft.root: draft for draft in drafts}
    readers = Counter(operand for draft in drafts for operand in {use.operand for use in draft.inputs})
    readers.update(outputs)
    folded = [_folded(draft, producers, readers) for draft in drafts]
    return _needed(folded, outputs)


def _folded(draft: Draft, producers: dict[Step, Draft], readers: Counter[Any]) -> Draft:
    inner = _producer(draft.inputs[0].operand, producers) if draft.op == "QuantizeLinear" else None
    if inner is None or inner.op not in FOLDS or readers[inner.root] > 1 or not _per_tensor(draft.out):
        return draft
    feeds = [_producer(use.operand, producers) for use in inner.inputs]
    dequantizes = [feed for feed in feeds if feed is not None and feed.op == "DequantizeLinear"]
    if not dequantizes or len(dequantizes) != len(feeds):
        return draft
    uses = [feed.inputs[0] for feed in dequantizes]
    op, accepts = FOLDS[inner.op]
    return _joined(op, draft, inner, dequantizes, uses) if accepts(draft, inner, uses) else draft


def _joined(op: str, draft: Draft, inner: Draft, dequantizes: list[Draft], uses: list[Use]) -> Draft:
    parts = [*dict.fromkeys(dequantizes), inner, draft]
    members = [step for part in parts for step in part.members]
    return Draft(op, draft.root, uses, inner.attrs, draft.out, list(dict.fromkeys(members)), parts)


def _producer(operand: Operand | None, producers: dict[Step, Draft]) -> Draft | None:
    return producers.get(operand) if isinstance(operand, Step) else None


def _per_tensor(kind: Any) -> bool:
    return isinstance(kind, Quantized) and kind.axis is None


def _all_per_tensor(draft: Draft, inner: Draft, uses: list[Use]) -> bool:
    return all(_per_tensor(use.want) for use in uses)


def _as_output(draft: Draft, inner: Draft, uses: list[Use]) -> bool:
    """Codes that are moved, not computed, must mean the same before and after."""
    return all(use.want == draft.out for use in uses)


def _one_onnx_node(draft: Draft, inner: Draft, uses: list[Use]) -> bool:
    """A QLinear operator that Relay spells as three calls; three ONNX nodes become a table of the compiler instead."""
    return bool(draft.root.span) and draft.root.span == inner.root.span and _all_per_tensor(draft, inner, uses)


def _average(draft: Draft, inner: Draft, uses: list[Use]) -> bool:
    """Windows that count alike: one scale for their sums, which are what the float average shows."""
    padded = any(inner.attrs["pads"]) and not inner.attrs.get("count_include_pad", 0)
    alike = not padded and not inner.attrs.get("ceil_mode", 0)
    return _all_per_tensor(draft, inner, uses) and (alike or _one_onnx_node(draft, inner, uses))


def _variable(draft: Draft, inner: Draft, uses: list[Use]) -> bool:
    """Constants among the float inputs of a concatenation are no codes that can be observed."""
    constant = any(isinstance(use.operand, Const) for use in uses)
    return _all_per_tensor(draft, inner, uses) and (not constant or _one_onnx_node(draft, inner, uses))


def _linear(draft: Draft, inner: Draft, uses: list[Use]) -> bool:
    """Per-tensor data, weights with scales per output channel at most, an int32 bias in units of the product."""
    data, weight, *bias = (use.want for use in uses)
    if not isinstance(data, Quantized) or data.axis is not None or not isinstance(weight, Quantized):
        return False
    product = np.float32(data.scale[0]) * np.asarray(weight.scale, np.float32)
    return weight.axis in (None, _channel_axis(inner)) and all(_is_bias_of(kind, product) for kind in bias)


def _channel_axis(inner: Draft) -> int:
    if inner.op == "ConvTranspose":
        return 1
    if inner.op == "Conv" or inner.attrs.get("transB"):
        return 0
    operand = inner.inputs[1].operand
    assert operand is not None
    return len(operand.shape) - 1


def _is_bias_of(kind: Quantized | None, product: NDArray[np.float32]) -> bool:
    if kind is None or kind.dtype != "int32" or any(kind.zero_point):
        return False
    return bool(np.allclose(kind.scale, product, rtol=1e-6, atol=0))


def _needed(drafts: list[Draft], outputs: Sequence[Operand]) -> list[Draft]:
    """Drafts that an output or a later draft reads."""
    needed: set[Any] = set(outputs)
    kept = []
    for draft in reversed(drafts):
        if draft.root in needed:
            kept.append(draft)
            needed.update(use.operand for use in draft.inputs)
    return kept[::-1]


CODE_MOVES = (
    *("Reshape", "Transpose", "Slice", "Identity", "Gather", "Expand", "Tile", "DepthToSpace", "SpaceToDepth"),
    *("MaxPool", "ReduceMax", "ReduceMin"),
)

# float op -> (quantised op, whether it accepts these inputs)
FOLDS: dict[str, tuple[str, Callable[[Draft, Draft, list[Use]], bool]]] = {
    "Add": ("QLinearAdd", _all_per_tensor),
    "Mul": ("QLinearMul", _all_per_tensor),
    "Concat": ("QLinearConcat", _variable),
    "AveragePool": ("QLinearAveragePool", _average),
    "GlobalAveragePool": ("QLinearGlobalAveragePool", _all_per_tensor),
    "Sigmoid": ("QLinearSigmoid", _one_onnx_node),
    "LeakyRelu": ("QLinearLeakyRelu", _one_onnx_node),
    "ConvTranspose": ("QLinearConvTranspose", _linear),
    "Conv": ("QLinearConv", _linear),
    "MatMul": ("QLinearMatMul", _linear),
    "Gemm": ("QGemm", _linear),
    **{op: (op, _as_output) for op in CODE_MOVES},
}
