"""Custom operators of the tests: kernels in TE and TVMScript, element-wise and by rows, and models that call them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from epu.custom_ops import CustomCall, CustomKernel, CustomOp, CustomOutput, using
from epu.graph import Fixed, Graph
from epu.lanes import mulr, rshr, saturate

DOMAIN = helper.make_opsetid("com.quadric", 1)
FLOAT, INT8 = TensorProto.FLOAT, TensorProto.INT8


def frac(tensor: Any) -> int:
    assert isinstance(tensor.type, Fixed)
    return tensor.type.frac


# --- y = x * x + bias: element-wise with a constant, in TE


def square_types(call: CustomCall) -> CustomOutput:
    return CustomOutput(call.inputs[0].shape)


def square_shift(call: CustomCall) -> int:
    return 2 * frac(call.inputs[0]) - frac(call.result)


def square_bias(call: CustomCall) -> NDArray[np.int32]:
    bias = np.asarray(call.constants[1], np.float64) * 2.0 ** frac(call.result)
    return np.rint(bias).astype(np.int32)


def square_reference(call: CustomCall, inputs: list[NDArray[np.int64]]) -> NDArray[Any]:
    return saturate(mulr(inputs[0], inputs[0], square_shift(call)) + square_bias(call), "int32")


def square_kernel(call: CustomCall) -> CustomKernel:
    from epu.tir_schedules.intrinsics import mulr as times
    from epu.tir_schedules.intrinsics import sat
    from epu.tir_schedules.tvm_api import te

    rows, length = call.inputs[0].shape
    x, bias = te.placeholder((rows, length), "int32", name="X"), te.placeholder((length,), "int32", name="B")
    shift = te.var("shift", "int64")
    body = lambda m, n: sat(times(x[m, n], x[m, n], shift, bias[n]), "int32")  # noqa: E731
    y = te.compute((rows, length), body, name="Y")
    function = te.create_prim_func([x, bias, shift, y])
    return CustomKernel(function, {"X": 0}, {"B": square_bias(call)}, {"shift": square_shift(call)})


def square_interval(call: CustomCall) -> tuple[float, float]:
    low, high = call.inputs[0].range or (0.0, 0.0)
    bias = call.constants[1]
    return float(bias.min()), max(low * low, high * high) + float(bias.max())


SQUARE = CustomOp("square", square_types, square_reference, square_kernel, interval=square_interval)


# --- y = x - max of the row: stages with a reduction, in TVMScript


def below_reference(call: CustomCall, inputs: list[NDArray[np.int64]]) -> NDArray[Any]:
    return saturate(
        rshr(inputs[0] - inputs[0].max(axis=-1, keepdims=True), frac(call.inputs[0]) - frac(call.result)), "int32"
    )


def below_kernel(call: CustomCall) -> CustomKernel:
    from epu.tir_schedules.intrinsics import rshr as shifted
    from epu.tir_schedules.intrinsics import sat
    from epu.tir_schedules.tvm_api import script

    T = script.tir  # as TVMScript is written
    rows, length = call.inputs[0].shape
    assert shifted is not None
    assert sat is not None

    @T.prim_func  # type: ignore[untyped-decorator]
    def function(
        X: T.Buffer((rows, length), "int32"),  # type: ignore[valid-type]
        shift: T.int64,  # type: ignore[name-defined]
        Y: T.Buffer((rows, length), "int32"),  # type: ignore[valid-type]
    ) -> None:
        top = T.alloc_buffer((rows,), "int32")
        for i, k in T.grid(rows, length):
            with T.block("top"):
                m, n = T.axis.remap("SR", [i, k])
                with T.init():
                    top[m] = T.min_value("int32")
                top[m] = T.max(top[m], X[m, n])
        for i, k in T.grid(rows, length):
            with T.block("Y"):
                m, n = T.axis.remap("SS", [i, k])
                Y[m, n] = sat(shifted(T.Cast("int64", X[m, n]) - T.Cast("int64", top[m]), shift), "int32")

    return CustomKernel(function, {"X": 0}, scalars={"shift": frac(call.inputs[0]) - frac(call.result)})


def below_interval(call: CustomCall) -> tuple[float, float]:
    low, high = call.inputs[0].range or (0.0, 0.0)
    return low - high, 0.0


BELOW = CustomOp("below", square_types, below_reference, below_kernel, interval=below_interval)


# --- a table of int8 codes: the output is quantised, its scale is the readers'


def mirror_types(call: CustomCall) -> CustomOutput:
    return CustomOutput(call.inputs[0].shape, "int8")


def mirror_table(call: CustomCall) -> NDArray[np.int8]:
    return np.arange(-128, 128).astype(np.int8)[::-1] // np.int8(call.attrs.get("divisor", 1))


def mirror_reference(call: CustomCall, inputs: list[NDArray[np.int64]]) -> NDArray[Any]:
    return mirror_table(call)[inputs[0] + 128]


def mirror_kernel(call: CustomCall) -> CustomKernel:
    from epu.tir_schedules.elementwise import elementwise

    shape = call.inputs[0].shape
    body = lambda v: v["T"][v["X"].astype("int32") + 128]  # noqa: E731
    kernel = elementwise("mirror", shape, "int8", {"X": ("input", shape, "int8")}, body, tables={"T": (256, "int8")})
    return CustomKernel(kernel, {"X": 0}, {"T": mirror_table(call)})


MIRROR = CustomOp("mirror", mirror_types, mirror_reference, mirror_kernel)

OPS = {op.name: op for op in (SQUARE, BELOW, MIRROR)}


# --- models


def call_node(op: str, inputs: Sequence[str], output: str, name: str = "custom", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(
        "QuadricCustomOp", list(inputs), [output], name=name, domain="com.quadric", op_name=op, **attributes
    )


def model_of(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int],
    constants: dict[str, Any] | None = None,
    output: str = "y",
    input_type: int = FLOAT,
) -> onnx.ModelProto:
    """Input x of ``shape``; the output has the same shape."""
    graph = helper.make_graph(
        list(nodes),
        "custom",
        [helper.make_tensor_value_info("x", input_type, list(shape))],
        [helper.make_tensor_value_info(output, FLOAT, list(shape))],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), DOMAIN], ir_version=10)


def typed(
    model: onnx.ModelProto, ranges: dict[str, tuple[float, float]] | None, ops: dict[str, CustomOp] = OPS
) -> Graph:
    from epu.front_end import import_model, to_typed_graph

    with using(ops):
        return to_typed_graph(import_model(model), ranges, "custom")


def changed(op: CustomOp, **fields: Any) -> dict[str, CustomOp]:
    """The operators of the tests, one of them with other functions."""
    return {**OPS, op.name: replace(op, **fields)}
