"""Dequantize → float op → Quantize becomes the quantised op: drafts → drafts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Float, Quantized
from epu.relay_passes.draft import Draft, Use
from epu.relay_passes.relay_view import Const, Operand, Step


def fold_qdq(drafts: list[Draft], outputs: Sequence[Operand]) -> list[Draft]:
    """DequantizeLinear(x…) → op → QuantizeLinear becomes QLinear-op where the float value has no other reader.

    The quantised draft takes the Quantize's place and covers what it replaced. A Dequantize with other readers stays
    for those. Add, Mul, Concat, Conv, MatMul, Gemm, AveragePool and GlobalAveragePool have a quantised form; layout operations
    and MaxPool work on codes where the scales before and after are equal; the others stay. Conv, MatMul and Gemm of codes whose
    value is read as a float are the quantised operator with a float result. A Reshape or Transpose between the Dequantize and
    operators that all read codes works on codes.
    """
    movable = {draft.root for draft in drafts if draft.op in VIEWS}
    while True:
        folder = _Folder(drafts, outputs, movable)
        folded = _needed(folder.run(), outputs)
        stuck = folder.half_moved(folded)
        if not stuck:
            return folded
        movable -= stuck


@dataclass(frozen=True)
class Codes:
    """Codes that a float operand was decoded from; ``parts``: the drafts that no longer decode or move it, ``members``
    theirs and those of what moved a constant."""

    use: Use
    parts: list[Draft]
    members: list[Step]


class _Folder:
    def __init__(self, drafts: list[Draft], outputs: Sequence[Operand], movable: set[Step]) -> None:
        self.drafts, self.outputs, self.movable = drafts, outputs, movable
        self.producers = {draft.root: draft for draft in drafts}
        self.readers = Counter(operand for draft in drafts for operand in {use.operand for use in draft.inputs})
        self.readers.update(outputs)
        self.moved: dict[Step, Draft] = {}  # moves that work on codes, by root
        self.on_codes: set[Draft] = set()  # drafts that read them

    def run(self) -> list[Draft]:
        folded = [self.folded(draft) for draft in self.drafts]
        inner = {part.root for draft in folded for part in draft.covers if draft.op != "DequantizeLinear"}
        products = [self.product(draft) if draft.root not in inner else draft for draft in folded]
        return [self.moved.get(draft.root, draft) for draft in products]

    def half_moved(self, kept: list[Draft]) -> set[Step]:
        """Moves on codes that some draft reads as floats."""
        read = {use.operand for draft in kept if draft not in self.on_codes for use in draft.inputs}
        return {root for root in self.moved if root in read or root in self.outputs}

    def folded(self, draft: Draft) -> Draft:
        inner = _producer(draft.inputs[0].operand, self.producers) if draft.op == "QuantizeLinear" else None
        if inner is None or inner.op not in FOLDS or self.readers[inner.root] > 1 or not _per_tensor(draft.out):
            return draft
        op, accepts = FOLDS[inner.op]
        found = self.codes_of(inner.inputs)
        if found is None or not accepts(draft, inner, [each.use for each in found]):
            return draft
        return self.joined(op, draft, inner, found, [inner, draft])

    def product(self, draft: Draft) -> Draft:
        """A float product of codes as the quantised operator with a float result."""
        if draft.op not in PRODUCTS or draft.out is not None:
            return draft
        found = self.codes_of(draft.inputs[:2])
        bias = self.codes(draft.inputs[2]) if len(draft.inputs) > 2 else None
        if found is None or not is_product(draft, [each.use for each in found]):
            return draft
        if bias is not None and _linear(draft, draft, [each.use for each in (*found, bias)]):
            found.append(bias)
        uses = [each.use for each in found] + draft.inputs[len(found) :]
        return self.joined(FOLDS[draft.op][0], draft, draft, found, [draft], uses, Float())

    def joined(
        self,
        op: str,
        draft: Draft,
        inner: Draft,
        found: list[Codes],
        own: list[Draft],
        uses: list[Use] | None = None,
        out: Quantized | Float | None = None,
    ) -> Draft:
        parts = [*dict.fromkeys(part for each in found for part in each.parts), *own]
        members = [step for each in found for step in each.members] + [step for part in own for step in part.members]
        uses = [each.use for each in found] if uses is None else uses
        result = Draft(op, draft.root, uses, inner.attrs, out or draft.out, list(dict.fromkeys(members)), parts)
        self.use_moved(result)
        return result

    def use_moved(self, draft: Draft) -> None:
        """``draft`` reads codes: so do the moves that it reads."""
        self.on_codes.add(draft)
        for use in draft.inputs:
            maker = _producer(use.operand, self.producers)
            if maker is None or maker.op not in VIEWS or use.want is None or maker.root in self.moved:
                continue
            if maker.root.dtype != "float32":
                continue  # it moves codes as it stands
            found = self.codes(maker.inputs[0])
            assert found is not None
            members = list(dict.fromkeys([*found.members, *maker.members]))
            parts = [*found.parts, maker] if found.parts else []
            moved = Draft(maker.op, maker.root, [found.use], maker.attrs, use.want, members, parts)
            self.moved[maker.root] = moved
            self.use_moved(moved)

    def codes_of(self, uses: Sequence[Use]) -> list[Codes] | None:
        found = [self.codes(use) for use in uses]
        return None if not found or None in found else [each for each in found if each is not None]

    def codes(self, use: Use) -> Codes | None:
        """What a float operand was decoded from; None where it was not."""
        maker = _producer(use.operand, self.producers)
        if maker is None:
            return None
        if maker.op == "DequantizeLinear":
            return Codes(maker.inputs[0], [maker], maker.members)
        inner = self.codes(maker.inputs[0]) if maker.op in VIEWS else None
        if inner is None or inner.use.want is None:
            return None
        if isinstance(inner.use.operand, Const):
            return _moved_constant(maker, inner)
        if maker.root not in self.movable or not _per_tensor(inner.use.want):
            return None
        return Codes(Use(maker.root, inner.use.want), [], [])


def _moved_constant(maker: Draft, inner: Codes) -> Codes | None:
    """Constant codes after a Reshape or Transpose; scales per channel go with their axis through a Transpose."""
    operand, want = inner.use.operand, inner.use.want
    assert isinstance(operand, Const)
    assert want is not None
    data = operand.data if inner.use.data is None else inner.use.data
    if maker.op == "Transpose":
        perm = maker.attrs["perm"]
        axis = None if want.axis is None else perm.index(want.axis % data.ndim)
        use = Use(operand, replace(want, axis=axis), data.transpose(perm))
    elif want.axis is None:
        use = Use(operand, want, data.reshape(maker.root.shape))
    else:
        return None
    return Codes(use, inner.parts, [*inner.members, *maker.members])


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
    """A product of codes with an int32 bias in units of the product."""
    data, weight, *bias = (use.want for use in uses)
    if not is_product(inner, uses) or data is None or weight is None:
        return False
    product = np.float32(data.scale[0]) * np.asarray(weight.scale, np.float32)
    return all(_is_bias_of(kind, product) for kind in bias)


def is_product(inner: Draft, uses: list[Use]) -> bool:
    """Bytes; per-tensor data; weights with scales per output channel at most; constant filters; sums within int32; no vectors."""
    data, weight = (use.want for use in uses[:2])
    if not isinstance(data, Quantized) or data.axis is not None or not isinstance(weight, Quantized):
        return False
    if "Conv" in inner.op and not isinstance(uses[1].operand, Const):
        return False
    is_byte = {data.dtype, weight.dtype} <= {"int8", "uint8"}
    vectors = any(use.operand is not None and len(use.operand.shape) < 2 for use in inner.inputs[:2])
    return is_byte and not vectors and weight.axis in (None, _channel_axis(inner)) and _depth(inner) < LONGEST_SUM


def _depth(inner: Draft) -> int:
    """Number of products in a sum, at most."""
    left, right = (use.operand for use in inner.inputs[:2])
    assert left is not None
    assert right is not None
    if "Conv" not in inner.op:
        return int(left.shape[-1])
    channels = right.shape[1] if inner.op == "Conv" else left.shape[1] // int(inner.attrs["group"])
    return int(channels * prod(right.shape[2:]))


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


LONGEST_SUM = 1 << 15  # products of codes that an int32 holds
PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
VIEWS = ("Reshape", "Transpose")
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
