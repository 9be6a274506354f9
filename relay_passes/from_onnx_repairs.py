"""Repairs of ``relay.frontend.from_onnx``: converters that hhb-tvm rewrote to float without requantisation.

Converters are looked up on their class at call time, so new class methods are enough. A TVM whose converters still
requantise is left alone. The integer converters follow the ONNX specification.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.relay_passes.tvm_relay import install_onnx_mapping, relay
from epu.simulator.errors import UserError

qnn = relay.qnn.op


def install() -> None:
    """Repair what is broken in this TVM, and ``onnx.mapping``."""
    install_onnx_mapping()
    frontend = relay.frontend.onnx
    if "requantize" in inspect.getsource(frontend.QLinearConv._impl_v10):
        return
    for name, convert in CONVERTERS.items():
        getattr(frontend, name)._impl_v10 = classmethod(convert)
    _repair_matmul(frontend)


# --- operands


def _array(expr: Any, params: Any, what: str) -> NDArray[Any]:
    """Array of an expression that must be constant."""
    frontend = relay.frontend.onnx
    folded = frontend.fold_constant(frontend.try_resolve_var_to_const(expr, params))
    if not isinstance(folded, relay.Constant):
        raise UserError(f"from_onnx: the {what} must be a constant, found {type(folded).__name__}. Fold it first.")
    return folded.data.numpy()


def _const(array: NDArray[Any], dtype: str) -> Any:
    flat = np.asarray(array, dtype).reshape(-1)
    return relay.const(flat[0] if flat.size == 1 else flat, dtype)


def _zero_point(array: NDArray[Any]) -> Any:
    return _const(array if array.any() else np.zeros(1), "int32")


def _shape(expr: Any) -> tuple[int, ...]:
    return tuple(int(dim) for dim in relay.frontend.common.infer_shape(expr))


def _dtype(expr: Any) -> str:
    return str(relay.frontend.common.infer_type(expr).checked_type.dtype)


def _scales(inputs: Any, params: Any, places: tuple[int, ...]) -> list[NDArray[Any]]:
    return [_array(inputs[place], params, "scale or zero point") for place in places]


def _requantized(acc: Any, source: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any], dtype: str, axis: int) -> Any:
    product, target = _const(source, "float32"), _const(scale, "float32")
    return qnn.requantize(acc, product, relay.const(0), target, _const(zero, "int32"), axis=axis, out_dtype=dtype)


# --- convolution


def _window(frontend: Any, data: Any, weight: Any, attr: Any, pad_value: float) -> tuple[Any, dict[str, Any]]:
    """Data (padded where auto_pad says SAME) and the keyword arguments of a convolution."""
    kernel, rank = _shape(weight), len(_shape(data))
    if rank != 4:
        raise UserError(f"from_onnx: an integer convolution must have 4 axes, found {rank}. Reshape its input.")
    ones = (1, 1)
    strides, dilations = attr.get("strides", ones), attr.get("dilations", ones)
    padding, mode = attr.get("pads", (0, 0, 0, 0)), attr.get("auto_pad", b"NOTSET")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    if mode.startswith("SAME"):
        data = frontend.autopad(data, strides, list(kernel[2:]), dilations, pad_value=pad_value, mode=mode)
    settings = {
        "kernel_size": attr.get("kernel_shape", kernel[2:]),
        "channels": kernel[0],
        "strides": strides,
        "padding": (0, 0, 0, 0) if mode != "NOTSET" else padding,
        "dilation": dilations,
        "groups": attr.get("group", 1),
    }
    return data, settings


def _qlinear_conv(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
    data, weight = inputs[0], inputs[3]
    x_scale, x_zero, w_scale, w_zero, y_scale, y_zero = _scales(inputs, params, (1, 2, 4, 5, 6, 7))
    data, settings = _window(relay.frontend.onnx, data, weight, attr, float(x_zero.reshape(-1)[0]))
    zeros, scales = (_zero_point(x_zero), _zero_point(w_zero)), (_const(x_scale, "float32"), _const(w_scale, "float32"))
    acc = qnn.conv2d(data, weight, *zeros, *scales, **settings)
    if len(inputs) == 9 and inputs[8] is not None:
        acc = relay.nn.bias_add(acc, inputs[8])
    return _requantized(acc, x_scale * w_scale, y_scale, y_zero, _dtype(inputs[7]), 1)


def _conv_integer(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
    x_zero, w_zero = _optional_zero_points(inputs, params)
    data, settings = _window(relay.frontend.onnx, inputs[0], inputs[1], attr, float(x_zero.reshape(-1)[0]))
    one = relay.const(1.0)
    return qnn.conv2d(data, inputs[1], _zero_point(x_zero), _zero_point(w_zero), one, one, **settings)


def _optional_zero_points(inputs: Any, params: Any) -> list[NDArray[Any]]:
    given = [inputs[index] if index < len(inputs) else None for index in (2, 3)]
    return [np.zeros(1, np.int32) if expr is None else _array(expr, params, "zero point") for expr in given]


# --- matrix product

Finish = Callable[[Any], Any]


def _matmul(a: Any, b: Any, dense: Callable[[Any, Any, int], Any], batch: Callable[[Any, Any], Any]) -> Any:
    """``a @ b`` through one dense (2-D b) or batch product between reshapes."""
    a_shape, b_shape = _shape(a), _shape(b)
    if len(b_shape) == 2:
        flat = a if len(a_shape) == 2 else relay.reshape(a, (-1, a_shape[-1]))
        out = dense(flat, relay.transpose(b, (1, 0)), b_shape[1])
        return out if len(a_shape) == 2 else relay.reshape(out, (*a_shape[:-1], b_shape[1]))
    stack = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
    a3, b3 = (_stacked(expr, shape, stack) for expr, shape in ((a, a_shape), (b, b_shape)))
    return relay.reshape(batch(a3, relay.transpose(b3, (0, 2, 1))), (*stack, a_shape[-2], b_shape[-1]))


def _stacked(expr: Any, shape: tuple[int, ...], stack: tuple[int, ...]) -> Any:
    full = (*stack, *shape[-2:])
    wide = expr if shape == full else relay.broadcast_to(expr, full)
    return relay.reshape(wide, (-1, *shape[-2:]))


def _integer_matmul(a: Any, b: Any, zeros: Any, scales: Any, dense_end: Finish, batch_end: Finish) -> Any:
    def dense(x: Any, w: Any, units: int) -> Any:
        return dense_end(qnn.dense(x, w, *zeros, *scales, units=units, out_dtype="int32"))

    def batch(x: Any, y: Any) -> Any:
        return batch_end(qnn.batch_matmul(x, y, *zeros, *scales, out_dtype="int32"))

    return _matmul(a, b, dense, batch)


def _qlinear_matmul(cls: Any, inputs: Any, attr: Any, params: Any, expected_out_dtypes: Any = None) -> Any:
    a_scale, a_zero, b_scale, b_zero, y_scale, y_zero = _scales(inputs, params, (1, 2, 4, 5, 6, 7))
    zeros, scales = (_zero_point(a_zero), _zero_point(b_zero)), (_const(a_scale, "float32"), _const(b_scale, "float32"))
    dtype, product = _dtype(inputs[7]), a_scale * b_scale

    def end(axis: int) -> Finish:
        return lambda acc: _requantized(acc, product, y_scale, y_zero, dtype, axis)

    return _integer_matmul(inputs[0], inputs[3], zeros, scales, end(1), end(-1))


def _matmul_integer(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
    zeros = [_zero_point(zero) for zero in _optional_zero_points(inputs, params)]
    one = relay.const(1.0)
    return _integer_matmul(inputs[0], inputs[1], zeros, (one, one), lambda acc: acc, lambda acc: acc)


def _repair_matmul(frontend: Any) -> None:
    """MatMul with a computed 2-D right side (every QDQ weight) calls batch_matmul on two axes there."""
    original = frontend.matmul_out_dtype

    def repaired(inputs: Any, out_dtype: str) -> Any:
        a, b = inputs[0], inputs[1]
        ranks = [len(relay.frontend.common.infer_shape(expr)) for expr in (a, b)]
        if ranks[1] != 2 or ranks[0] <= 2 or isinstance(b, relay.Constant):
            return original(inputs, out_dtype)

        def dense(x: Any, w: Any, units: int) -> Any:
            return relay.nn.dense(x, w, units=units, out_dtype=out_dtype)

        return _matmul(a, b, dense, relay.nn.batch_matmul)

    frontend.matmul_out_dtype = repaired


CONVERTERS = {
    "QLinearConv": _qlinear_conv,
    "ConvInteger": _conv_integer,
    "QLinearMatMul": _qlinear_matmul,
    "MatMulInteger": _matmul_integer,
}
