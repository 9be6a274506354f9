"""Small ONNX models for the tests of the Relay door."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

Array = NDArray[Any]
MICROSOFT = "com.microsoft"


class Builder:
    """Grows a model node by node; an array among the inputs becomes an initializer."""

    def __init__(self, opset: int = 17) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, value: Any, name: str = "") -> str:
        name = name or f"const_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op: str, inputs: Iterable[Any], name: str = "", domain: str = "", **attributes: Any) -> str:
        name = name or f"/{op}_{len(self.nodes)}"
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self.nodes.append(helper.make_node(op, names, [f"{name}_out"], name, domain=domain, **attributes))
        return f"{name}_out"

    def model(self, inputs: dict[str, Array], outputs: list[str]) -> onnx.ModelProto:
        """The model; ``inputs`` are samples that give shapes and types."""
        graph = helper.make_graph(
            self.nodes,
            "test",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                for name, value in inputs.items()
            ],
            [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
            self.initializers,
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 8
        return with_output_types(model, inputs)


def with_output_types(model: onnx.ModelProto, inputs: dict[str, Array]) -> onnx.ModelProto:
    """Outputs typed as ONNX Runtime asks: int8 after a quantised node, else what shape inference says."""
    inferred = onnx.shape_inference.infer_shapes(model)
    known = {info.name: info.type for info in (*inferred.graph.value_info, *inferred.graph.output)}
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    for output in model.graph.output:
        kind = known.get(output.name)
        if kind is not None and kind.tensor_type.elem_type != TensorProto.UNDEFINED:
            output.type.CopyFrom(kind)
        else:
            quantized = makers[output.name].startswith("Q")
            output.type.tensor_type.elem_type = TensorProto.INT8 if quantized else TensorProto.FLOAT
            output.type.tensor_type.ClearField("shape")
    return model if all_shaped(model) else with_run_shapes(model, inputs)


def all_shaped(model: onnx.ModelProto) -> bool:
    return all(output.type.tensor_type.HasField("shape") for output in model.graph.output)


def with_run_shapes(model: onnx.ModelProto, inputs: dict[str, Array]) -> onnx.ModelProto:
    """Outputs with the shapes that ONNX Runtime computes."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for output, value in zip(model.graph.output, session.run(None, inputs)):
        output.CopyFrom(helper.make_tensor_value_info(output.name, output.type.tensor_type.elem_type, value.shape))
    return model


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def codes(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def q(scale: float, zero: int = 0) -> tuple[Any, Any]:
    """Scale and zero point of a per-tensor int8 quantisation."""
    return np.float32(scale), np.int8(zero)


def qlinear_network() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Most QLinear operators between one QuantizeLinear and one DequantizeLinear, per-channel weights included."""
    grow = Builder()
    x = grow.node("QuantizeLinear", ["x", *q(0.03, 3)], "quantize")
    weight, scales = codes(8, 3, 3, 3), np.linspace(0.002, 0.01, 8, dtype=np.float32)
    conv = [x, *q(0.03, 3), weight, scales, np.zeros(8, np.int8), *q(0.05, -4), np.arange(8, dtype=np.int32) * 50]
    x = grow.node("QLinearConv", conv, "conv", pads=[1, 1, 1, 1], strides=[2, 2])
    y = grow.node("QLinearConv", [x, *q(0.05, -4), codes(8, 1, 3, 3, seed=1), *q(0.01), *q(0.06)], "depthwise", group=8)
    y = grow.node("QLinearGlobalAveragePool", [y, *q(0.06), *q(0.05)], "pool", MICROSOFT, channels_last=0)
    x = grow.node("QLinearMul", [x, *q(0.05, -4), y, *q(0.05), *q(0.04)], "gate", MICROSOFT)
    x = grow.node("QLinearAdd", [x, *q(0.04), codes(8, 1, 1), *q(0.02), *q(0.06, 1)], "shift", MICROSOFT)
    x = grow.node("Transpose", [x], "transpose", perm=[0, 2, 3, 1])
    x = grow.node("QLinearMatMul", [x, *q(0.06, 1), codes(8, 6), *q(0.01), *q(0.08)], "product")
    x = grow.node("Reshape", [x, np.array([4, 24], np.int64)], "flat")
    gemm = [x, *q(0.08), codes(5, 24, seed=2), *q(0.02), np.arange(5, dtype=np.int32), *q(0.3)]
    x = grow.node("QGemm", gemm, "gemm", MICROSOFT, transB=1)
    x = grow.node("DequantizeLinear", [x, *q(0.3)], "dequantize")
    sample = {"x": normal(1, 3, 8, 8)}
    return grow.model(sample, [x]), sample


def tables() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The QLinear operators that are tables, and QLinearConcat."""
    grow = Builder()
    x = grow.node("QuantizeLinear", ["x", *q(0.03, 3)], "quantize")
    a = grow.node("QLinearSigmoid", [x, *q(0.03, 3), *q(1 / 256, -128)], "sigmoid", MICROSOFT)
    b = grow.node("QLinearLeakyRelu", [x, *q(0.03, 3), *q(0.02)], "leaky", MICROSOFT, alpha=0.25)
    parts = [a, *q(1 / 256, -128), b, *q(0.02)]
    x = grow.node("QLinearConcat", [*q(0.025), *parts], "concat", MICROSOFT, axis=1)
    x = grow.node("DequantizeLinear", [x, *q(0.025)], "dequantize")
    sample = {"x": normal(1, 3, 4, 4)}
    return grow.model(sample, [x]), sample


def attention() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """int8 scores of two computed operands, float softmax, int8 context."""
    grow = Builder()
    a = grow.node("QuantizeLinear", ["a", *q(0.03)], "qa")
    b = grow.node("QuantizeLinear", ["b", *q(0.03)], "qb")
    s = grow.node("QLinearMatMul", [a, *q(0.03), b, *q(0.03), *q(0.1)], "scores")
    s = grow.node("Softmax", [grow.node("DequantizeLinear", [s, *q(0.1)], "ds")], "softmax", axis=-1)
    s = grow.node("QuantizeLinear", [s, *q(1 / 127)], "qs")
    c = grow.node("Transpose", [b], "bt", perm=[0, 2, 1])
    y = grow.node("QLinearMatMul", [s, *q(1 / 127), c, *q(0.03), *q(0.05)], "context")
    y = grow.node("DequantizeLinear", [y, *q(0.05)], "dy")
    sample = {"a": normal(2, 4, 6), "b": normal(2, 6, 5, seed=1)}
    return grow.model(sample, [y]), sample


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """Three normal samples for ``float_network``."""

    def __init__(self) -> None:
        self.left = iter([{"x": normal(1, 3, 4, 4, seed=seed)} for seed in range(3)])

    def get_next(self) -> Any:
        return next(self.left, None)


def quantised(folder: Path, form: QuantFormat, per_channel: bool) -> onnx.ModelProto:
    """``float_network`` as ONNX Runtime's own quantiser writes it."""
    onnx.save(float_network(), folder / "float.onnx")
    options = {"ActivationSymmetric": True, "WeightSymmetric": True}
    kinds = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    paths = (folder / "float.onnx", folder / "int8.onnx")
    quantize_static(*paths, Samples(), quant_format=form, per_channel=per_channel, extra_options=options, **kinds)
    return onnx.load(paths[1])


def float_network() -> onnx.ModelProto:
    """A small float network for ONNX Runtime's own quantiser."""
    grow = Builder()
    x = grow.node("Conv", ["x", normal(8, 3, 3, 3, scale=0.3), normal(8, seed=1)], "conv", pads=[1, 1, 1, 1])
    x = grow.node("Relu", [x], "relu")
    y = grow.node("Conv", [x, normal(8, 8, 1, 1, scale=0.3), normal(8, seed=2)], "point")
    x = grow.node("Add", [x, y], "residual")
    x = grow.node("Reshape", [x, np.array([1, 8, 16], np.int64)], "flat")
    x = grow.node("MatMul", [x, normal(16, 6, scale=0.3)], "product")
    return grow.model({"x": normal(1, 3, 4, 4)}, [x])
