"""Relay → typed nodes for convolutions and matrix products, float and quantised."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Quantized
from epu.relay_passes.draft import Draft, Use, const_array, quantized, refuse
from epu.relay_passes.relay_view import Const, Operand, Step, same_node, same_onnx_node

BIAS = ("nn.bias_add", "add")
PRODUCTS = {"nn.dense", "nn.matmul", "nn.batch_matmul", "qnn.dense", "qnn.batch_matmul"}
CONVS = {"nn.conv2d", "qnn.conv2d"}
WRAPPERS = ("reshape", "broadcast_to")


@dataclass(frozen=True)
class Requantize:
    """int32 → int8: one qnn.requantize, or a dequantize and a quantize."""

    step: Step
    in_scale: Operand
    in_zero: Operand
    out_scale: Operand
    out_zero: Operand


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


def linear_draft(step: Step) -> Draft | None:
    """Draft of the linear operation that ends at ``step``; None where there is none."""
    found = _find(step)
    if found is None:
        return None
    if found.is_quantized and found.requantize is None:
        remedy = "Requantise it (qnn.requantize) or leave it on the host"
        raise refuse(step, "the int32 product must be requantised to int8", step.op, remedy)
    return _conv(found) if found.core.op in CONVS else _product(found)


def linear_group(step: Step) -> list[Step]:
    """The calls that belong to one linear operation ending at ``step``, at least ``step`` itself."""
    found = _find(step)
    return [step] if found is None else found.members


def _find(step: Step) -> Linear | None:
    """Peel reshape, requantize and bias off ``step``, outermost first."""
    members, inner = [step], step
    requantize = bias = None
    if inner.op == "reshape" and _belongs(inner, same_onnx_node):
        inner = _descend(inner, members)
    if inner.op in ("qnn.requantize", "qnn.quantize") and isinstance(inner.args[0], Step):
        requantize, inner = _requantize(inner, members)
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


# --- convolution


def _conv(found: Linear) -> Draft:
    core, attrs = found.core, found.core.attrs
    if (attrs.data_layout, attrs.kernel_layout) != ("NCHW", "OIHW"):
        layout = f"{attrs.data_layout}/{attrs.kernel_layout}"
        raise refuse(
            found.root, "the layout must be NCHW/OIHW", layout, "Convert it with relay.transform.ConvertLayout"
        )
    group = int(attrs.groups)
    settings = {
        "strides": _ints(attrs.strides),
        "pads": _pads(attrs.padding),
        "dilations": _ints(attrs.dilation),
        "group": group,
        "kernel_shape": tuple(core.args[1].shape[2:]),
    }
    if not found.is_quantized:
        uses = [Use(core.args[0]), Use(core.args[1]), *_float_bias(found)]
        return Draft("Conv", found.root, uses, settings, members=found.members)
    data, weight = _operand_types(found, 0)
    _check_product_scale(found, data, weight)
    uses = [Use(core.args[0], data), Use(core.args[1], weight), *_int_bias(found, data, weight)]
    return Draft("QLinearConv", found.root, uses, settings, _out(found), found.members)


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _pads(padding: Any) -> tuple[int, ...]:
    """Relay's padding of 1, 2 or 4 numbers as all begins, then all ends."""
    pads = _ints(padding)
    return pads * (4 // len(pads))


# --- matrix product


def _product(found: Linear) -> Draft | None:
    """MatMul of a and b as ONNX had them; Gemm where a bias follows or b is a computed [N, K]."""
    right = _right(found.core, has_bias=found.bias is not None)
    is_matrix = len(found.core.shape) == 2
    if is_matrix and (found.bias is not None or not right.is_kn):
        return None if found.root.op == "reshape" else _gemm(found, right)
    if not right.is_kn:
        right = Right(_transposed(right.operand, found.core), True)
    return _matmul(found, right)


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


def _matmul(found: Linear, right: Right) -> Draft:
    members = [*found.members, *right.members]
    a = _strip(found.core.args[0], found.core, members)
    b = _strip(right.operand, found.core, members)
    data = None if right.data is None else _stacked(found, right.data)
    if not found.is_quantized:
        return Draft("MatMul", found.root, [Use(a), Use(b, data=data)], members=members)
    rank = len(b.shape if data is None else data.shape)
    a_type, b_type = _operand_types(found, rank - 1)
    _check_product_scale(found, a_type, b_type)
    return Draft("QLinearMatMul", found.root, [Use(a, a_type), Use(b, b_type, data)], {}, _out(found), members)


def _gemm(found: Linear, right: Right) -> Draft:
    members = [*found.members, *right.members]
    a, b = found.core.args[0], right.operand
    attrs: dict[str, Any] = {"transB": int(not right.is_kn), "alpha": 1.0}
    if not found.is_quantized:
        return Draft("Gemm", found.root, [Use(a), Use(b, data=right.data), *_float_bias(found)], attrs, members=members)
    a_type, b_type = _operand_types(found, int(right.is_kn))
    attrs["alpha"] = _alpha(found, a_type, b_type)
    uses = [Use(a, a_type), Use(b, b_type, right.data), *_int_bias(found, a_type, b_type)]
    return Draft("QGemm", found.root, uses, attrs, _out(found), members)


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


# --- quantisation of operands, bias, output


def _operand_types(found: Linear, channel_axis: int) -> tuple[Quantized, Quantized]:
    data, weight, data_zero, weight_zero, data_scale, weight_scale = found.core.args
    left = quantized(found.root, data.dtype, data_scale, data_zero, None)
    return left, quantized(found.root, weight.dtype, weight_scale, weight_zero, channel_axis)


def _out(found: Linear) -> Quantized:
    """Output type; checks that the requantisation reads the product with the product's scale and zero point 0."""
    end = found.requantize
    assert end is not None
    if const_array(end.step, end.in_zero, "input zero point").any():
        raise refuse(end.step, "the zero point of the int32 product must be 0", "another", "Subtract it first")
    return quantized(end.step, end.step.dtype, end.out_scale, end.out_zero, None)


def _product_scale(left: Quantized, right: Quantized) -> NDArray[np.float32]:
    return np.asarray(np.float32(left.scale[0]) * np.asarray(right.scale, np.float32), np.float32)


def _requantized_from(found: Linear) -> NDArray[np.float32]:
    assert found.requantize is not None
    return np.asarray(const_array(found.root, found.requantize.in_scale, "input scale"), np.float32).reshape(-1)


def _check_product_scale(found: Linear, left: Quantized, right: Quantized) -> None:
    """The scale the requantisation reads must be the product's; a last bit may differ in hand-written code."""
    product, actual = _product_scale(left, right), _requantized_from(found)
    if not np.allclose(actual, product, rtol=1e-6, atol=0):
        limit = f"the input scale of qnn.requantize must be the product's scale {product.tolist()[:2]}"
        raise refuse(found.root, limit, actual.tolist()[:2], "Multiply the two input scales")


def _alpha(found: Linear, left: Quantized, right: Quantized) -> float:
    product, actual = _product_scale(left, right), _requantized_from(found)
    return 1.0 if np.array_equal(actual, product) else float(np.float32(actual[0] / product[0]))


def _int_bias(found: Linear, left: Quantized, right: Quantized) -> list[Use]:
    if found.bias is None:
        return []
    data = const_array(found.root, found.bias, "bias").reshape(-1)
    channels = found.core.shape[1 if found.core.op in CONVS else -1]
    data = np.ascontiguousarray(np.broadcast_to(data, (channels,)))
    scale = tuple(map(float, _product_scale(left, right)))
    axis = 0 if len(scale) > 1 else None
    return [Use(found.bias, Quantized("int32", scale, (0,) * len(scale), axis), data)]


def _float_bias(found: Linear) -> list[Use]:
    return [] if found.bias is None else [Use(found.bias)]
