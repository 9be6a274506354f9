"""ONNX nodes that move, resize and slide windows: imported, compiled and simulated, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from relay_models import MICROSOFT, Builder, q

from epu.compiler import compile_graph
from epu.passes.assign_ranges import assign_ranges
from epu.relay_passes.import_onnx import import_onnx
from epu.relay_passes.to_graph import to_graph
from epu.simulator import Machine, simulate
from epu.simulator.fixed_point import decode_raw, encode_real

Array = NDArray[Any]
MACHINE = Machine.for_product("QC-N")
RNG = np.random.default_rng(5)
X3 = RNG.uniform(-4, 4, (2, 5, 6)).astype(np.float32)
X4 = RNG.uniform(-4, 4, (1, 4, 7, 9)).astype(np.float32)
W22 = RNG.uniform(-1, 1, (4, 3, 2, 2)).astype(np.float32)


def array(*values: int) -> Array:
    return np.array(values, np.int64)


def scales(*values: float) -> Array:
    return np.array(values, np.float32)


def pool(**attrs: Any) -> dict[str, Any]:
    return {"kernel_shape": [3, 2], "strides": [2, 2], **attrs}


def nearest(where: str, rounding: str) -> dict[str, Any]:
    return {"coordinate_transformation_mode": where, "nearest_mode": rounding}


# op, constant inputs after x ("" where absent), x, attributes
CASES: dict[str, tuple[str, list[Any], Array, dict[str, Any]]] = {
    "concat": ("Concat", [X3[:, :2] * 3], X3, {"axis": 1}),
    "concat_one": ("Concat", [], X3, {"axis": -1}),
    "slice": ("Slice", [array(-1, 1), array(-100, 5), array(2, 1), array(-2, 2)], X3, {}),
    "split": ("Split", [array(2, 3)], X3, {"axis": 1}),
    "gather": ("Gather", [array(3, -1, 0, 0)], X3, {"axis": 1}),
    "gather_scalar": ("Gather", [np.array(-2, np.int64)], X3, {"axis": 2}),
    "expand": ("Expand", [array(3, 4, 1, 6)], X3[:1, :1], {}),
    "tile": ("Tile", [array(2, 1, 3)], X3, {}),
    "pad": ("Pad", [array(0, 1, 2, 1, 0, 3), np.array(2.5, np.float32)], X3, {}),
    "pad_negative": ("Pad", [array(0, -1, 2, 0, 0, -2)], X3, {}),
    "pad_edge": ("Pad", [array(0, 1, 2, 1, 0, 3)], X3, {"mode": "edge"}),
    "pad_reflect": ("Pad", [array(0, 1, 2, 0, 3, 4)], X3, {"mode": "reflect"}),
    "depth_to_space": ("DepthToSpace", [], X4, {"blocksize": 2}),
    "depth_to_space_crd": ("DepthToSpace", [], X4, {"blocksize": 2, "mode": "CRD"}),
    "space_to_depth": ("SpaceToDepth", [], X4[:, :, :6, :8], {"blocksize": 2}),
    "transpose": ("Transpose", [], X3.reshape(1, 2, 5, 1, 2, 3), {"perm": [5, 0, 2, 4, 3, 1]}),
    "resize": ("Resize", ["", scales(1, 1, 2, 3)], X4, nearest("asymmetric", "floor")),
    "resize_half": ("Resize", ["", scales(1, 1, 2, 4)], X4, nearest("half_pixel", "round_prefer_floor")),
    "resize_ceil": ("Resize", ["", scales(1, 1, 2, 4)], X4, nearest("half_pixel", "round_prefer_ceil")),
    "resize_corners": ("Resize", ["", "", array(1, 4, 13, 25)], X4, nearest("align_corners", "round_prefer_floor")),
    "resize_smaller": ("Resize", ["", "", array(1, 4, 3, 4)], X4, nearest("asymmetric", "ceil")),
    "resize_linear": ("Resize", ["", scales(1, 1, 2, 2)], X4, {"mode": "linear"}),
    "resize_linear_corners": (
        "Resize",
        ["", "", array(1, 4, 10, 14)],
        X4,
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    "max_pool_ceil": ("MaxPool", [], X4, pool(ceil_mode=1, pads=[1, 0, 0, 1])),
    "average_pool": ("AveragePool", [], X4, pool()),
    "average_pool_ceil": ("AveragePool", [], X4, pool(ceil_mode=1)),
    "average_pool_pad": ("AveragePool", [], X4, pool(pads=[1, 1, 1, 0])),
    "average_pool_counted": ("AveragePool", [], X4, pool(pads=[1, 1, 1, 0], count_include_pad=1)),
    "average_pool_counted_ceil": (
        "AveragePool",
        [],
        X4,
        {"kernel_shape": [2, 3], "strides": [3, 2], "pads": [1, 1, 0, 1], "count_include_pad": 1, "ceil_mode": 1},
    ),
    "global_max_pool": ("GlobalMaxPool", [], X4, {}),
    "reduce_max": ("ReduceMax", [], X4, {"axes": [1, 3], "keepdims": 0}),
    "reduce_min": ("ReduceMin", [], X4, {"axes": [2], "keepdims": 1}),
    "reduce_sum": ("ReduceSum", [array(1)], X4, {"keepdims": 0}),
    "reduce_mean": ("ReduceMean", [], X4, {"axes": [1]}),
    "conv_transpose": ("ConvTranspose", [W22, scales(1, -2, 0.5)], X4, {"strides": [2, 2]}),
}


def model_of(case: str) -> onnx.ModelProto:
    op, constants, x, attrs = CASES[case]
    names = [f"c{k}" if isinstance(each, np.ndarray) else "" for k, each in enumerate(constants)]
    initializers = [numpy_helper.from_array(each, name) for each, name in zip(constants, names) if name]
    outputs = ["y", "z"] if op == "Split" else ["y"]
    node = helper.make_node(op, ["x", *names], outputs, "node", **attrs)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(
        [node], "one", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)], infos, initializers
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("case", CASES)
def test_float_node(case: str) -> None:
    model, x = model_of(case), CASES[case][2]
    expected = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    module, _, names = import_onnx(model)
    ranges = {"x": (-4.0, 4.0)} | {name: (float(y.min()), float(y.max())) for name, y in zip("yz", expected)}
    compiled = compile_graph(assign_ranges(to_graph(module, "one", names), ranges), MACHINE)
    (source,) = compiled.program.inputs
    found = simulate(compiled.program, {"x": encode_real(source.decode, x)}).outputs
    for buffer, want in zip(compiled.program.outputs, expected):
        np.testing.assert_allclose(
            decode_raw(buffer.decode, found[buffer.name]), want, rtol=0, atol=2.0**-21 * np.abs(want).max()
        )


def simulated(model: onnx.ModelProto, x: Array, rounding: str) -> Array:
    """The one output; all ranges follow from scales."""
    module, _, names = import_onnx(model)
    compiled = compile_graph(assign_ranges(to_graph(module, "one", names)), MACHINE, rounding=rounding)
    (source,), (target,) = compiled.program.inputs, compiled.program.outputs
    raw = simulate(compiled.program, {source.name: encode_real(source.decode, x)}).outputs
    return decode_raw(target.decode, raw[target.name])


def quantised(grow: Builder, x: str, op: str, **attrs: Any) -> str:
    """int8 ``x`` of scale 0.0513 through ``op`` to scale 0.0607, zero points 3 and -5."""
    return grow.node(op, [x, *q(0.0513, 3), *q(0.0607, -5)], "node", MICROSOFT, **attrs)


def average_pool(grow: Builder, x: str) -> str:
    return quantised(grow, x, "QLinearAveragePool", **pool(pads=[1, 1, 1, 0], ceil_mode=1))


def average_pool_counted(grow: Builder, x: str) -> str:
    return quantised(grow, x, "QLinearAveragePool", **pool(pads=[1, 1, 1, 0], count_include_pad=1))


def concat_of_one(grow: Builder, x: str) -> str:
    return grow.node("QLinearConcat", [*q(0.0607, -5), x, *q(0.0513, 3)], "node", MICROSOFT, axis=1)


def concat_with_nothing(grow: Builder, x: str) -> str:
    empty = grow.node("Slice", [x, array(2), array(2), array(1)], "empty")
    return grow.node(
        "QLinearConcat", [*q(0.0607, -5), x, *q(0.0513, 3), empty, *q(0.0513, 3)], "node", MICROSOFT, axis=1
    )


def conv_transpose(grow: Builder, x: str, **attrs: Any) -> str:
    real = grow.node("DequantizeLinear", [x, *q(0.0513, 3)])
    weights = grow.node("DequantizeLinear", [RNG.integers(-127, 127, (4, 2, 3, 3), np.int8), *q(0.01)])
    return grow.node(
        "QuantizeLinear", [grow.node("ConvTranspose", [real, weights], "node", **attrs), *q(0.0607, -5)], "end"
    )


def conv_transpose_strided(grow: Builder, x: str) -> str:
    return conv_transpose(grow, x, strides=[2, 1], pads=[1, 0, 1, 2], output_padding=[1, 0])


def conv_transpose_blocks(grow: Builder, x: str) -> str:
    return conv_transpose(grow, x, strides=[3, 3])


def conv_1d(grow: Builder, x: str) -> str:
    """Three axes: rows of the picture are channels."""
    codes = grow.node("Reshape", [x, array(4, 7, 9)])
    weights = np.arange(-42, 42, dtype=np.int8).reshape(4, 7, 3)
    operands = [codes, *q(0.0513, 3), weights, *q(0.003), *q(0.0607, -5), np.arange(4, dtype=np.int32) * 90]
    return grow.node("QLinearConv", operands, "node", pads=[2, 1], strides=[2], dilations=[2])


def conv_1d_nodes(grow: Builder, x: str) -> str:
    """The same as DequantizeLinear, Conv, QuantizeLinear."""
    real = grow.node("DequantizeLinear", [grow.node("Reshape", [x, array(4, 7, 9)]), *q(0.0513, 3)])
    weights = grow.node("DequantizeLinear", [np.arange(-42, 42, dtype=np.int8).reshape(4, 7, 3), *q(0.003)])
    conv = grow.node("Conv", [real, weights], "node", pads=[2, 1], strides=[2], dilations=[2])
    return grow.node("QuantizeLinear", [conv, *q(0.0607, -5)], "end")


def max_of_codes(grow: Builder, x: str) -> str:
    real = grow.node("DequantizeLinear", [x, *q(0.0513, 3)])
    return grow.node("QuantizeLinear", [grow.node("GlobalMaxPool", [real], "node"), *q(0.0513, 3)], "end")


NETWORKS = (
    *(average_pool, average_pool_counted, concat_of_one, concat_with_nothing),
    *(conv_1d, conv_1d_nodes),
    *(conv_transpose_strided, conv_transpose_blocks, max_of_codes),
)


@pytest.mark.parametrize("rounding", ["exact", "ort"])
@pytest.mark.parametrize("network", NETWORKS)
def test_int8_node(network: Any, rounding: str) -> None:
    """Equal but for single steps at ONNX Runtime's own float32 ties."""
    grow = Builder()
    codes = network(grow, grow.node("QuantizeLinear", ["x", *q(0.0513, 3)]))
    scale = q(0.0513, 3) if network is max_of_codes else q(0.0607, -5)
    model = grow.model({"x": X4}, [grow.node("DequantizeLinear", [codes, *scale])])
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": X4})
    steps = np.rint((simulated(model, X4, rounding) - expected) / float(scale[0]))
    assert np.abs(steps).max() <= 1
    assert (steps != 0).mean() < 0.02
