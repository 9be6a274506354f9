"""Relay → typed nodes for convolutions and matrix products, float and quantised."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Integer, Quantized
from epu.relay_passes.draft import Draft, Use, refuse
from epu.relay_passes.linear import CONVS, TRANSPOSED_CONVS, Linear, find_linear
from epu.relay_passes.linear_types import (
    alpha_of,
    check_product_scale,
    float_bias,
    has_alpha,
    int_bias,
    operand_types,
    out_type,
)
from epu.relay_passes.relay_view import Const, Operand, Step, same_node, same_onnx_node

CONV_LAYOUTS, TRANSPOSE_LAYOUTS = (("NCHW", "OIHW"), ("NCW", "OIW")), (("NCHW", "IOHW"), ("NCW", "IOW"))
WRAPPERS = ("reshape", "broadcast_to")


def linear_draft(step: Step) -> Draft | None:
    """Draft of the linear operation that ends at ``step``; None where there is none."""
    found = find_linear(step)
    if found is None:
        return None
    if found.is_quantized and found.requantize is None and not _is_integer(found):
        remedy = "Requantise it (qnn.requantize) or leave it on the host"
        raise refuse(step, "the int32 product must be requantised to int8", step.op, remedy)
    return _conv(found) if found.core.op in CONVS else _product(found)


def _is_integer(found: Linear) -> bool:
    """MatMulInteger or ConvInteger: the result is the int32 sum itself."""
    return found.bias is None and (found.core.op in CONVS or not _needs_gemm(found, _right(found.core, False)))


# --- convolution


def _conv(found: Linear) -> Draft:
    """One or two spatial axes; the reshapes that give an axis of one to a 1-D convolution belong to it."""
    core, attrs = found.core, found.core.attrs
    turned = core.op in TRANSPOSED_CONVS
    if (attrs.data_layout, attrs.kernel_layout) not in (TRANSPOSE_LAYOUTS if turned else CONV_LAYOUTS):
        layout = f"{attrs.data_layout}/{attrs.kernel_layout}"
        raise refuse(
            found.root, "the layout must be NCHW/OIHW", layout, "Convert it with relay.transform.ConvertLayout"
        )
    members, rank = list(found.members), len(found.root.shape) - 2
    x = _strip(core.args[0], core, members)
    settings = {
        "strides": _ints(attrs.strides)[-rank:],
        "pads": _pads(attrs.padding, len(core.shape) - 2, rank),
        "dilations": _ints(attrs.dilation)[-rank:],
        "group": int(attrs.groups),
        "kernel_shape": tuple(core.args[1].shape[-rank:]),
    }
    if turned:
        settings["output_padding"] = _ints(attrs.output_padding)
    if not found.is_quantized:
        uses = [Use(x), Use(core.args[1]), *float_bias(found)]
        return Draft("ConvTranspose" if turned else "Conv", found.root, uses, settings, members=members)
    data, weight = operand_types(found, 0)
    if found.requantize is None:
        uses = [Use(x, data), _weights(core.args[1], weight, rank)]
        return Draft("ConvInteger", found.root, uses, settings, Integer("int32"), members)
    check_product_scale(found, data, weight)
    uses = [Use(x, data), _weights(core.args[1], weight, rank), *int_bias(found, data, weight)]
    return Draft("QLinearConv", found.root, uses, settings, out_type(found), members)


def _weights(operand: Operand, kind: Quantized, rank: int) -> Use:
    """Constant weights in the rank of the ONNX node."""
    if not isinstance(operand, Const) or operand.data.ndim == rank + 2:
        return Use(operand, kind)
    return Use(operand, kind, operand.data.reshape((*operand.shape[:2], *operand.shape[-rank:])))


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _pads(padding: Any, spatial: int, rank: int) -> tuple[int, ...]:
    """Relay's padding of 1 to 4 numbers as all begins, then all ends, of the last ``rank`` of ``spatial`` axes."""
    pads = _ints(padding)
    pads = pads * (2 * spatial // len(pads))
    return (*pads[spatial - rank : spatial], *pads[2 * spatial - rank :])


# --- matrix product


def _product(found: Linear) -> Draft | None:
    """MatMul of a and b as ONNX had them; Gemm where a bias follows or b is a computed [N, K]."""
    right = _right(found.core, has_bias=found.bias is not None)
    if _needs_gemm(found, right):
        return None if found.root.op == "reshape" else _gemm(found, right)
    if not right.is_kn:
        right = Right(_transposed(right.operand, found.core), True)
    return _matmul(found, right)


def _needs_gemm(found: Linear, right: Right) -> bool:
    """A matrix with a bias, with b stored [N, K], or with an alpha, which an ONNX node alone can have."""
    if len(found.core.shape) != 2:
        return False
    return found.bias is not None or not right.is_kn or (bool(found.root.span) and has_alpha(found))


@dataclass
class Right:
    """Right operand of a product: where it comes from, and whether it is laid out [..., K, N] (else [..., N, K])."""

    operand: Operand
    is_kn: bool
    data: NDArray[Any] | None = None  # a constant's data in that layout
    members: list[Step] = field(default_factory=list)

    @property
    def rank(self) -> int:
        return len(self.operand.shape if self.data is None else self.data.shape)


def _right(core: Step, has_bias: bool) -> Right:
    """Right operand without the transpose that belongs to the product's own ONNX node."""
    operand = core.args[1]
    if not _stored_transposed(core):
        return Right(operand, True)
    if isinstance(operand, Const):
        return Right(operand, False) if has_bias else Right(operand, True, np.swapaxes(operand.data, -1, -2))
    own = isinstance(operand, Step) and operand.op == "transpose" and same_node(operand, core)
    if isinstance(operand, Step) and own and _swaps_last_two(operand):
        return Right(operand.args[0], True, members=[operand])
    return Right(operand, False)


def _matmul(found: Linear, right: Right) -> Draft | None:
    members = [*found.members, *right.members]
    if not found.is_quantized:
        a = _strip(found.core.args[0], found.core, members)
        b = _strip(right.operand, found.core, members)
        data = None if right.data is None else _stacked(found, right.data)
        left = _stacked(found, a.data) if isinstance(a, Const) else None
        return Draft("MatMul", found.root, [Use(a, data=left), Use(b, data=data)], members=members)
    operands = _operands(found, right)
    if operands is None:
        return None  # the outer reshape is a node of its own
    (a, left, more), (b, data, most) = operands
    a_type, b_type = operand_types(found, len(b.shape if data is None else data.shape) - 1)
    uses, members = [Use(a, a_type, left), Use(b, b_type, data)], [*members, *more, *most]
    if found.requantize is None:
        return Draft("MatMulInteger", found.root, uses, {}, Integer("int32"), members)
    check_product_scale(found, a_type, b_type)
    return Draft("QLinearMatMul", found.root, uses, {}, out_type(found), members)


Stripped = tuple[Operand, "NDArray[Any] | None", list[Step]]  # operand, a constant's data, what was taken off


def _operands(found: Linear, right: Right) -> tuple[Stripped, Stripped] | None:
    """Both operands without as many reshapes and broadcasts of the ONNX node as the result's shape allows: stacks are equal,
    or the right one is of one matrix. None where they fit the product alone, not the reshape after it."""
    core = found.core
    for a in _forms(found, core.args[0], None):
        for b in _forms(found, right.operand, right.data):
            left, other = (each[0].shape if each[1] is None else each[1].shape for each in (a, b))
            if min(len(left), len(other)) >= 2 and _product_shape(left, other) == found.root.shape:
                return a, b
    return None


def _product_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    if a[:-2] != b[:-2] and prod(b[:-2]) != 1:
        return None
    return (*a[:-1], b[-1]) if len(a) >= len(b) else (*b[:-2], *a[-2:-1], b[-1])


def _forms(found: Linear, operand: Operand, data: NDArray[Any] | None) -> list[Stripped]:
    """The operand with ever fewer of the wrappers of its own ONNX node taken off, a constant's data also stacked."""
    if isinstance(operand, Const):
        plain = operand.data if data is None else data
        return [(operand, _stacked(found, plain), []), (operand, plain, [])]
    forms: list[Stripped] = [(operand, None, [])]
    while isinstance(operand, Step) and operand.op in WRAPPERS and same_onnx_node(operand, found.core):
        members = [*forms[-1][2], operand]
        operand = operand.args[0]
        forms.append((operand, None, members))
    return forms[::-1]


def _gemm(found: Linear, right: Right) -> Draft:
    members = [*found.members, *right.members]
    a, b = found.core.args[0], right.operand
    attrs: dict[str, Any] = {"transB": int(not right.is_kn), "alpha": 1.0}
    if not found.is_quantized:
        return Draft("Gemm", found.root, [Use(a), Use(b, data=right.data), *float_bias(found)], attrs, members=members)
    a_type, b_type = operand_types(found, int(right.is_kn))
    attrs["alpha"] = alpha_of(found, a_type, b_type)
    uses = [Use(a, a_type), Use(b, b_type, right.data), *int_bias(found, a_type, b_type)]
    return Draft("QGemm", found.root, uses, attrs, out_type(found), members)


def _strip(operand: Operand, core: Step, members: list[Step]) -> Operand:
    """``operand`` without the reshapes that belong to the product's own ONNX node."""
    while isinstance(operand, Step) and operand.op in WRAPPERS and same_onnx_node(operand, core):
        members.append(operand)
        operand = operand.args[0]
    return operand


def _stored_transposed(core: Step) -> bool:
    """Relay stores the right operand as [N, K] unless the call says otherwise."""
    if core.op not in ("nn.matmul", "nn.batch_matmul"):
        return True
    if core.attrs.transpose_a:
        raise refuse(core, "transpose_a must be False", True, "Transpose the left operand explicitly")
    return bool(core.attrs.transpose_b)


def _swaps_last_two(step: Step) -> bool:
    rank = len(step.shape)
    axes = [int(axis) % rank for axis in step.attrs.axes] if step.attrs.axes is not None else list(range(rank))[::-1]
    return axes == [*range(rank - 2), rank - 1, rank - 2]


def _stacked(found: Linear, data: NDArray[Any]) -> NDArray[Any]:
    """A constant stack of matrices in the batch shape of the ONNX output, which the product had flattened."""
    stack = found.root.shape[:-2]
    fits = data.ndim == 3 and prod(stack) == data.shape[0]
    return data.reshape((*stack, *data.shape[-2:])) if fits else data


def _transposed(operand: Operand, core: Step) -> Step:
    """Explicit transpose of the last two axes, for a batch product whose right operand is stored [B, N, K]."""
    rank = len(operand.shape)
    axes = (*range(rank - 2), rank - 1, rank - 2)
    shape = tuple(operand.shape[axis] for axis in axes)
    return Step("transpose", (operand,), TransposeAttrs(axes), "", shape, operand.dtype, core.index - 0.5)


@dataclass(frozen=True)
class TransposeAttrs:
    """Attributes of a transpose that Relay did not spell out."""

    axes: tuple[int, ...]
