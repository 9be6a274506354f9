"""Relay → typed nodes: one row per Relay operator, in ONNX vocabulary. ``rows_linear`` has the grouped ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from epu.graph import Float
from epu.relay_passes.draft import Draft, Use, const_array, named, quantized, refuse
from epu.relay_passes.onnx_custom import RELAY_OP, custom_row
from epu.relay_passes.relay_view import Const, Operand, Step, same_onnx_node
from epu.relay_passes.rows_codes import clipped_codes, of_clip, of_maximum, of_minimum, of_relu
from epu.relay_passes.rows_linear import linear_draft
from epu.relay_passes.rows_moves import MOVES
from epu.relay_passes.rows_spelled import spelled
from epu.simulator.errors import UnsupportedNode

Row = Callable[[Step], "Draft | None"]
FLOAT_MAX = float(np.finfo(np.float32).max)


def draft_of(step: Step) -> Draft:
    """Draft of the node that ends at ``step``; raises ``UnsupportedNode`` where no row takes it."""
    for row in (linear_draft, spelled({"sum": _reduce_attributes}), *ROWS.get(step.op, ())):
        draft = row(step)
        if draft is not None:
            draft.members = draft.members or [step]
            return draft
    remedy = "It stays on the host; open an issue with the model to have it added"
    raise UnsupportedNode(f"{named(step)}: no row of the operator table takes it. {remedy}.")


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _simple(op: str, attributes: Callable[[Step], dict[str, Any]] | None = None) -> Row:
    """Row of an operator whose arguments are the node's inputs."""

    def row(step: Step) -> Draft:
        attrs = attributes(step) if attributes else {}
        return Draft(op, step, [Use(arg) for arg in step.args], attrs, None, [step])

    return row


def _float_only(op: str, attributes: Callable[[Step], dict[str, Any]] | None = None) -> Row:
    """Row of an operator with a meaning on real numbers only."""

    def row(step: Step) -> Draft:
        if step.args[0].dtype != "float32":
            remedy = "Dequantise it first, or leave it on the host"
            raise refuse(step, "the input must be float32", step.args[0].dtype, remedy)
        return _simple(op, attributes)(step)

    return row


# --- quantisation


def _quantize(step: Step) -> Draft:
    axis = _axis(step, step.attrs.axis)
    out = quantized(step, step.dtype, step.args[1], step.args[2], axis)
    return Draft("QuantizeLinear", step, [Use(step.args[0])], {}, out, [step])


def _dequantize(step: Step) -> Draft:
    axis = _axis(step, step.attrs.axis)
    want = quantized(step, step.args[0].dtype, step.args[1], step.args[2], axis)
    return Draft("DequantizeLinear", step, [Use(step.args[0], want)], {}, Float(), [step])


def _axis(step: Step, axis: Any) -> int:
    return int(axis) % max(len(step.shape), 1)


def _qnn_binary(op: str) -> Row:
    def row(step: Step) -> Draft:
        a, b, a_scale, a_zero, b_scale, b_zero, out_scale, out_zero = step.args
        uses = [
            Use(a, quantized(step, a.dtype, a_scale, a_zero, None)),
            Use(b, quantized(step, b.dtype, b_scale, b_zero, None)),
        ]
        return Draft(op, step, uses, {}, quantized(step, step.dtype, out_scale, out_zero, None), [step])

    return row


def _qnn_concatenate(step: Step) -> Draft:
    count = (len(step.args) - 2) // 3
    values, scales, zeros = (step.args[start * count : (start + 1) * count] for start in range(3))
    uses = [Use(v, quantized(step, v.dtype, s, z, None)) for v, s, z in zip(values, scales, zeros)]
    out = quantized(step, step.dtype, step.args[-2], step.args[-1], None)
    return Draft("QLinearConcat", step, uses, {"axis": _axis(step, step.attrs.axis)}, out, [step])


# --- elementwise


def _power(step: Step) -> Draft:
    exponent = const_array(step, step.args[1], "exponent")
    if exponent.size != 1:
        raise refuse(step, "there must be one exponent", exponent.size, "Split the node")
    return _float_only("Pow")(step)


def _clip_attributes(step: Step) -> dict[str, Any]:
    low, high = float(step.attrs.a_min), float(step.attrs.a_max)
    return {"min": low if low > -FLOAT_MAX else -np.inf, "max": high if high < FLOAT_MAX else np.inf}


def _hard_sigmoid(step: Step) -> Draft | None:
    """clip(x * alpha + beta, 0, 1) of one ONNX node."""
    shifted = _inner(step, "add", step)
    scaled = _inner(shifted, "multiply", step)
    if shifted is None or scaled is None or (step.attrs.a_min, step.attrs.a_max) != (0, 1):
        return None
    alpha, beta = _scalar(scaled.args[1]), _scalar(shifted.args[1])
    if alpha is None or beta is None:
        return None
    attrs = {"alpha": alpha, "beta": beta}
    return Draft("HardSigmoid", step, [Use(scaled.args[0])], attrs, None, [step, shifted, scaled])


def _inner(step: Step | None, op: str, root: Step) -> Step | None:
    """First argument of ``step`` where it is an ``op`` of the same ONNX node as ``root``."""
    inner = step.args[0] if step is not None else None
    return inner if isinstance(inner, Step) and inner.op == op and same_onnx_node(inner, root) else None


def _scalar(operand: Operand) -> float | None:
    return float(operand.data.reshape(-1)[0]) if isinstance(operand, Const) and operand.data.size == 1 else None


def _relu(step: Step) -> Draft:
    return _float_only("Relu")(step)


def _whole_average(step: Step) -> Draft | None:
    """An adaptive pooling to one element, as Relay spells a global one of one or three axes."""
    whole = all(size == 1 for size in _ints(step.attrs.output_size))
    return _float_only("GlobalAveragePool")(step) if whole and step.attrs.layout[:2] == "NC" else None


def _alpha(step: Step) -> dict[str, Any]:
    return {"alpha": float(step.attrs.alpha)}


def _prelu(step: Step) -> Draft:
    """Slopes along one axis, shaped to broadcast."""
    slopes, axis = const_array(step, step.args[1], "slope"), _axis(step, step.attrs.axis)
    shaped = slopes.reshape(-1, *(1,) * (len(step.shape) - 1 - axis))
    return Draft("PRelu", step, [Use(step.args[0]), Use(step.args[1], data=shaped)], {}, None, [step])


# --- reductions and normalisation


def _softmax_axis(step: Step) -> dict[str, Any]:
    return {"axis": _axis(step, step.attrs.axis)}


def _reduce_attributes(step: Step) -> dict[str, Any]:
    rank = len(step.args[0].shape)
    named = step.attrs.axis if step.attrs.axis is not None else range(rank)
    axes = tuple(sorted(int(axis) % rank for axis in named))
    if step.attrs.exclude:
        axes = tuple(axis for axis in range(rank) if axis not in axes)
    return {"axes": axes, "keepdims": int(step.attrs.keepdims)}


ARG_EXTREMES = {"argmax": "ArgMax", "argmin": "ArgMin"}


def _arg_extreme(step: Step) -> Draft | None:
    """The places of extremes, which Relay counts in int32, as the int64 of one ONNX node."""
    inner = step.args[0]
    if not isinstance(inner, Step) or inner.op not in ARG_EXTREMES or not same_onnx_node(inner, step):
        return None
    attrs = _reduce_attributes(inner) | {"select_last_index": int(inner.attrs.select_last_index)}
    return Draft(ARG_EXTREMES[inner.op], step, [Use(inner.args[0])], attrs, None, [step, inner])


def _cast(step: Step) -> Draft | None:
    """Between masks and float32."""
    kinds = {step.dtype, step.args[0].dtype}
    return _simple("Cast")(step) if kinds == {"bool", "float32"} else None


def _layer_norm_attributes(step: Step) -> dict[str, Any]:
    return {"axis": _axis(step, step.attrs.axis), "epsilon": float(step.attrs.epsilon)}


# --- windows


def _pool_attributes(step: Step) -> dict[str, Any]:
    attrs = step.attrs
    if not attrs.layout.startswith("NC"):
        raise refuse(step, "the layout must be channels first", attrs.layout, "Use relay.transform.ConvertLayout")
    kernel, pads = _ints(attrs.pool_size), _ints(attrs.padding)
    pads = pads * (2 * len(kernel) // len(pads))
    settings = {"kernel_shape": kernel, "strides": _ints(attrs.strides), "pads": pads}
    settings |= {"dilations": _ints(attrs.dilation), "ceil_mode": int(attrs.ceil_mode)}
    padded = getattr(attrs, "count_include_pad", None)
    return settings if padded is None else settings | {"count_include_pad": int(padded)}


# --- layout


def _first_input(op: str) -> Row:
    def row(step: Step) -> Draft:
        return Draft(op, step, [Use(step.args[0])], {}, None, [step])

    return row


def _perm(step: Step) -> dict[str, Any]:
    rank = len(step.shape)
    axes = step.attrs.axes
    return {"perm": tuple(int(axis) % rank for axis in axes) if axes else tuple(range(rank))[::-1]}


def _slice_attributes(step: Step) -> dict[str, Any]:
    attrs = step.attrs
    if attrs.slice_mode != "end":
        raise refuse(step, "slice_mode must be 'end'", attrs.slice_mode, "Give end positions")
    axes = _ints(attrs.axes) if attrs.axes is not None else tuple(range(len(attrs.begin)))
    steps = _ints(attrs.strides) if attrs.strides else (1,) * len(axes)
    steps = steps * len(axes) if len(steps) == 1 else steps
    return {"starts": _ints(attrs.begin), "ends": _ints(attrs.end), "axes": axes, "steps": steps}


def _concat_axis(step: Step) -> dict[str, Any]:
    return {"axis": _axis(step, step.attrs.axis)}


RESHAPES = ("reshape", "squeeze", "expand_dims", "nn.batch_flatten")
FLOAT_BINARY = {"add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div"}
FLOAT_UNARY = {
    "sqrt": "Sqrt",
    "exp": "Exp",
    "log": "Log",
    "erf": "Erf",
    "tanh": "Tanh",
    "negative": "Neg",
    "abs": "Abs",
    "sigmoid": "Sigmoid",
}
COMPARISONS = {
    "equal": "Equal",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
}
LOGIC = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "logical_not": "Not", "where": "Where"}
REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum"}
EXTREMES = {"max": "ReduceMax", "min": "ReduceMin"}  # of codes too

ROWS: dict[str, tuple[Row, ...]] = {
    "qnn.quantize": (_quantize,),
    "qnn.dequantize": (_dequantize,),
    "qnn.add": (_qnn_binary("QLinearAdd"),),
    "qnn.mul": (_qnn_binary("QLinearMul"),),
    "qnn.concatenate": (_qnn_concatenate,),
    **{name: (_float_only(op),) for name, op in {**FLOAT_BINARY, **FLOAT_UNARY}.items()},
    **{name: (_float_only(op, _reduce_attributes),) for name, op in REDUCTIONS.items()},
    **{name: (_simple(op, _reduce_attributes),) for name, op in EXTREMES.items()},
    **{name: (_float_only(op),) for name, op in COMPARISONS.items()},
    **{name: (_simple(op),) for name, op in LOGIC.items()},
    "maximum": (clipped_codes(of_maximum), _float_only("Max")),
    "minimum": (clipped_codes(of_minimum), _float_only("Min")),
    "power": (_power,),
    "nn.relu": (clipped_codes(of_relu), _relu),
    "nn.prelu": (_prelu,),
    "nn.leaky_relu": (_float_only("LeakyRelu", _alpha),),
    "clip": (clipped_codes(of_clip), _hard_sigmoid, _float_only("Clip", _clip_attributes)),
    "nn.softmax": (_float_only("Softmax", _softmax_axis),),
    "nn.layer_norm": (_float_only("LayerNormalization", _layer_norm_attributes),),
    **{f"nn.max_pool{rank}d": (_simple("MaxPool", _pool_attributes),) for rank in (1, 2)},
    **{f"nn.avg_pool{rank}d": (_float_only("AveragePool", _pool_attributes),) for rank in (1, 2)},
    "nn.global_avg_pool2d": (_float_only("GlobalAveragePool"),),
    **{f"nn.adaptive_avg_pool{rank}d": (_whole_average,) for rank in (1, 2, 3)},
    **{name: (_first_input("Reshape"),) for name in RESHAPES},
    "cast": (_arg_extreme, _cast),
    "copy": (_simple("Identity"),),
    "transpose": (_simple("Transpose", _perm),),
    "strided_slice": (_simple("Slice", _slice_attributes),),
    **MOVES,
    "concatenate": (_simple("Concat", _concat_axis),),
    RELAY_OP: (custom_row,),
}
