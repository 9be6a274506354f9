"""A case of a custom operator: the product of two tensors, in a PrimFunc of the user's."""

from __future__ import annotations

from typing import Any

import numpy as np
from node_cases import Draw, Found, case, extent, length, size
from numpy.typing import NDArray

from epu.custom_ops import CustomCall, CustomKernel, CustomOp, CustomOutput
from epu.graph import Fixed
from epu.lanes import mulr, saturate


def shift(call: CustomCall) -> int:
    a, b, y = (tensor.type for tensor in (*call.inputs, call.result))
    assert isinstance(a, Fixed)
    assert isinstance(b, Fixed)
    assert isinstance(y, Fixed)
    return a.frac + b.frac - y.frac


def reference(call: CustomCall, inputs: list[NDArray[np.int64]]) -> NDArray[Any]:
    return saturate(mulr(inputs[0], inputs[1], shift(call)), "int32")


def kernel(call: CustomCall) -> CustomKernel:
    """``b`` is one row, which all rows of ``a`` are multiplied by."""
    from epu.tir_schedules.intrinsics import mulr, sat
    from epu.tir_schedules.tvm_api import te

    rows, columns = call.inputs[0].shape
    a, b = te.placeholder((rows, columns), "int32", name="A"), te.placeholder((columns,), "int32", name="B")
    amount = te.var("shift", "int64")
    y = te.compute((rows, columns), lambda m, n: sat(mulr(a[m, n], b[n], amount), "int32"), name="Y")
    return CustomKernel(te.create_prim_func([a, b, amount, y]), {"A": 0, "B": 1}, scalars={"shift": shift(call)})


PRODUCT = CustomOp("product", lambda call: CustomOutput(call.inputs[0].shape), reference, kernel)


def custom_product(draw: Draw) -> Found:
    c, shape = case(draw), (draw(extent), draw(length))
    c.real("a", shape, draw(size))
    c.real("b", shape[1:], draw(size), constant=draw(size) > 1)
    c.result(shape, size=draw(size))
    return c.graph("QuadricCustomOp", custom=PRODUCT, attrs={}, constants={}, tensors={}), c.inputs
