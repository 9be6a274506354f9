"""Small quantised models written as each exporter writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
Model = tuple[onnx.ModelProto, dict[str, Array]]

CONTRIB = "com.microsoft"
TYPES = {
    "float32": TensorProto.FLOAT,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32,
}


def f32(value: Any) -> Any:
    return np.asarray(value, np.float32)


class Net:
    """A model in the making: constants become initializers, nodes are named after their outputs."""

    def __init__(self, seed: int = 3, opset: int = 17) -> None:
        self.random, self.opset = np.random.default_rng(seed), opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.feeds: dict[str, Array] = {}

    def input(self, name: str, data: Array) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[str(data.dtype)], data.shape))
        self.feeds[name] = data
        return name

    def constant(self, data: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(data)
        return name

    def node(self, op: str, *inputs: Any, domain: str = "", **attributes: Any) -> str:
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs if each is not None]
        output = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [output], f"n_{output}", domain=domain, **attributes))
        return output

    def model(self, *outputs: str, dtype: str = "float32") -> Model:
        ends = [helper.make_tensor_value_info(name, TYPES[dtype], None) for name in outputs]
        weights = [numpy_helper.from_array(data, name) for name, data in self.constants.items()]
        graph = helper.make_graph(self.nodes, "net", self.inputs, ends, weights)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8), self.feeds

    # --- what the models are made of

    def reals(self, *shape: int, size: float = 1.0) -> Array:
        return np.asarray(self.random.standard_normal(shape) * size, np.float32)

    def codes(self, dtype: str, *shape: int) -> Array:
        limits = np.iinfo(dtype)
        return self.random.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)

    def bias(self, count: int) -> Array:
        return self.random.integers(-3000, 3000, count).astype(np.int32)

    def activation(self, x: str, dtype: str = "uint8", low: float = -4, high: float = 4) -> str:
        """QuantizeLinear → DequantizeLinear of a float tensor, the zero point where ``low`` puts it."""
        scale = f32((high - low) / 255)
        zero = np.asarray(np.iinfo(dtype).min + round(-low / float(scale)), dtype)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, scale, zero), scale, zero)

    def weight(self, data: Array, form: WeightForm) -> str:
        return form.write(self, data)


@dataclass(frozen=True)
class WeightForm:
    """How an exporter writes quantised weights.

    ``axis``: of the scales, None for one; ``shift`` moves the zero point off the symmetric one. ``stored``: "codes" with
    a DequantizeLinear, or "reals" with a QuantizeLinear before it. ``zero``: "given", "omitted" from the DequantizeLinear;
    ``flat``: one scale as a vector of one element.
    """

    dtype: str = "int8"
    axis: int | None = None
    shift: int = 0
    stored: str = "codes"
    zero: str = "given"
    flat: bool = False
    negative_axis: bool = False

    def write(self, net: Net, data: Array) -> str:
        scale, zero = self.parameters(data)
        attributes: dict[str, Any] = (
            {} if self.axis is None else {"axis": self.axis - data.ndim if self.negative_axis else self.axis}
        )
        last = () if self.zero == "omitted" else (zero,)
        if self.stored == "reals":
            codes: Any = net.node("QuantizeLinear", data, scale, zero, **attributes)
        else:
            codes = self.codes(data, scale, zero)
        return net.node("DequantizeLinear", codes, scale, *last, **attributes)

    def parameters(self, data: Array) -> tuple[Array, Array]:
        others = None if self.axis is None else tuple(axis for axis in range(data.ndim) if axis != self.axis)
        scale = f32(np.abs(data).max(axis=others) / 127)
        scale = scale.reshape(1) if self.flat else scale
        return scale, np.full(scale.shape, (0 if self.dtype == "int8" else 128) + self.shift, self.dtype)

    def codes(self, data: Array, scale: Array, zero: Array) -> Array:
        shape = [1] * data.ndim
        if self.axis is not None:
            shape[self.axis] = -1
        limits = np.iinfo(self.dtype)
        found = np.rint(data / scale.reshape(shape)) + zero.reshape(shape)
        return np.clip(found, limits.min, limits.max).astype(self.dtype)


def zero_point(dtype: str, symmetric: bool, count: int | None = None) -> Array:
    value = 0 if symmetric else 7 if dtype == "int8" else 117
    return np.full(() if count is None else count, value, dtype)
