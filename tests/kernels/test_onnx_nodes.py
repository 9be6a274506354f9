"""One ONNX node from import to simulator: equal to golden and reference bit for bit, and to ONNX Runtime within float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from one_node import assert_same, run
from onnx import helper

from epu.compiler import compile_graph
from epu.front_end import import_model, to_typed_graph
from epu.quantization.observe import observe_ranges
from epu.raw_tensors import decode, encode
from epu.reference import run_reference
from epu.simulator import Machine

Array = NDArray[Any]
LEAST_DB = 120.0
OPSET, IR_VERSION = 17, 8
RNG = np.random.default_rng(7)


def real(*shape: int) -> Array:
    return np.asarray(RNG.normal(size=shape), np.float32)


def mask(*shape: int) -> Array:
    return np.asarray(RNG.integers(0, 2, shape), bool)


def codes(dtype: str, *shape: int) -> Array:
    return RNG.integers(-100 if dtype != "uint8" else 0, 100, shape).astype(dtype)


@dataclass(frozen=True)
class Model:
    """A model of one node and the arrays that it is fed."""

    proto: onnx.ModelProto
    feeds: dict[str, Array]
    answers: list[Array]


def session(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def model_of(op: str, arrays: Sequence[Array], constants: Sequence[int], opset: int, attrs: dict[str, Any]) -> Model:
    names = [f"x{index}" for index in range(len(arrays))]
    data = [index for index in range(len(arrays)) if index not in constants]
    inputs = [
        helper.make_tensor_value_info(names[k], helper.np_dtype_to_tensor_dtype(arrays[k].dtype), arrays[k].shape)
        for k in data
    ]
    kept = [onnx.numpy_helper.from_array(arrays[k], names[k]) for k in constants]
    node = helper.make_node(op, names, ["y"], name="node", **attrs)
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info("y")], kept)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
    feeds = {names[k]: arrays[k] for k in data}
    answers = session(proto).run(None, feeds)
    kind = helper.np_dtype_to_tensor_dtype(answers[0].dtype)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", kind, answers[0].shape))
    return Model(proto, feeds, answers)


def check(op: str, arrays: Sequence[Array], constants: Sequence[int] = (), opset: int = OPSET, **attrs: Any) -> None:
    model = model_of(op, arrays, constants, opset, attrs)
    ranges = observe_ranges(model.proto, iter([model.feeds]))
    module = compile_graph(to_typed_graph(import_model(model.proto), ranges, "one"), Machine.for_product("QC-N"))
    raw = encode(module.program.inputs, model.feeds)
    found, golden, reference = run(module, raw), module.golden(raw), run_reference(module.graph, raw)
    for name in sorted(set(golden) & set(found.observed)):
        assert_same(f"golden {name}", golden[name], reference[name])
        assert_same(f"simulator {name}", found.observed[name], golden[name])
    (answer,) = model.answers
    value = decode(module.program.outputs, found.result.outputs)["y"]
    assert (value.shape, value.dtype) == (answer.shape, answer.dtype)
    assert decibels(value, answer) >= LEAST_DB


def decibels(found: Array, expected: Array) -> float:
    """PSNR in dB; infinite without an error."""
    error = float(np.sqrt(np.mean(np.square(found.astype(np.float64) - expected.astype(np.float64)))))
    return float("inf") if error == 0 else 20 * float(np.log10(np.abs(expected).max() / error))


CONV = [
    {},
    {"group": 2},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    {"auto_pad": "VALID"},
    {"pads": [1, 2, 0, 1], "dilations": [2, 1]},
]


@pytest.mark.parametrize("attrs", CONV, ids=str)
def test_conv(attrs: dict[str, Any]) -> None:
    check("Conv", [real(1, 4, 8, 9), real(6, 4 // attrs.get("group", 1), 3, 2), real(6)], (1, 2), **attrs)


@pytest.mark.parametrize("attrs", [{}, {"pads": [1, 0], "strides": [2]}, {"auto_pad": "SAME_UPPER"}], ids=str)
def test_conv_over_one_dimension(attrs: dict[str, Any]) -> None:
    check("Conv", [real(2, 4, 11), real(4, 1, 3)], (1,), group=4, **attrs)


TRANSPOSED = [
    {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"auto_pad": "VALID"},
    {"strides": [3, 2], "output_shape": [10, 8]},
    {"strides": [3, 2], "output_shape": [8, 6]},
    {"strides": [3, 2], "output_shape": [10, 8], "output_padding": [1, 1]},
    {"strides": [2, 2], "pads": [1, 0, 1, 1], "output_padding": [1, 0], "dilations": [2, 1]},
    {"strides": [3, 3]},
    {"group": 2},
]


@pytest.mark.parametrize("attrs", TRANSPOSED, ids=str)
def test_conv_transpose(attrs: dict[str, Any]) -> None:
    check("ConvTranspose", [real(1, 4, 3, 3), real(4, 2, 3, 3), real(2 * attrs.get("group", 1))], (1, 2), **attrs)


def test_conv_transpose_over_one_dimension() -> None:
    check("ConvTranspose", [real(1, 4, 7), real(4, 2, 3), real(2)], (1, 2), strides=[2], pads=[1, 0])


BIASES: dict[str, tuple[Array, tuple[int, ...]]] = {
    "columns": (real(4), (1, 2)),
    "rows": (real(5, 1), (1, 2)),
    "matrix": (real(5, 4), (1, 2)),
    "one": (np.array(2.0, np.float32), (1, 2)),
    "variable": (real(5, 4), (1,)),
    "variable columns": (real(4), ()),
}


@pytest.mark.parametrize("turned", [{"transB": 1}, {"transA": 1, "alpha": 0.5, "beta": 0.3}], ids=str)
@pytest.mark.parametrize("bias", BIASES)
def test_gemm(bias: str, turned: dict[str, Any]) -> None:
    c, constants = BIASES[bias]
    check(
        "Gemm", [real(6, 5), real(6, 4), c] if "transA" in turned else [real(5, 6), real(4, 6), c], constants, **turned
    )


STACKS = (((2, 1, 3, 4), (5, 4, 5)), ((2, 2, 2, 3, 4), (2, 1, 2, 4, 3)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)))


@pytest.mark.parametrize("constant", [(), (0,), (1,)], ids=str)
@pytest.mark.parametrize("shapes", STACKS, ids=str)
def test_matmul(shapes: tuple[tuple[int, ...], tuple[int, ...]], constant: tuple[int, ...]) -> None:
    check("MatMul", [real(*shape) for shape in shapes], constant)


@pytest.mark.parametrize("attrs", [{}, {"axis": 1, "keepdims": 0}, {"axis": -1, "select_last_index": 1}], ids=str)
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_places_of_extremes(op: str, attrs: dict[str, Any]) -> None:
    check(op, [np.round(real(3, 5, 7))], **attrs)


@pytest.mark.parametrize("op", ["Equal", "Less", "GreaterOrEqual"])
def test_a_comparison_is_an_output(op: str) -> None:
    check(op, [np.round(real(3, 5)), np.round(real(5))])


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_masks_are_inputs_and_outputs(op: str) -> None:
    check(op, [mask(3, 5), mask(5)])


def test_a_mask_that_is_an_input_chooses() -> None:
    check("Where", [mask(3, 5), real(3, 5), real(5)])


@pytest.mark.parametrize("op", ["Not", "Transpose", "Identity"])
def test_one_mask(op: str) -> None:
    check(op, [mask(3, 5)])


CASTS = {
    "mask": (mask(3, 5), "FLOAT"),
    "to mask": (np.round(real(3, 5)), "BOOL"),
    "float": (real(3, 5), "FLOAT"),
    **{dtype: (codes(dtype, 3, 5), "FLOAT") for dtype in ("int8", "uint8", "int32")},
}


@pytest.mark.parametrize("name", CASTS)
def test_cast(name: str) -> None:
    array, to = CASTS[name]
    check("Cast", [array], to=getattr(onnx.TensorProto, to))


@pytest.mark.parametrize(("opset", "axis"), [(17, 1), (17, 0), (17, -1), (11, 1), (11, 3)])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_along_any_axis(op: str, opset: int, axis: int) -> None:
    check(op, [real(2, 3, 4, 5)], opset=opset, axis=axis)


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize(("op", "opset"), [("LayerNormalization", 17), ("RMSNormalization", 23)])
def test_normalisation_of_any_axes(op: str, opset: int, axis: int) -> None:
    shape = (2, 3, 4, 5)
    check(op, [real(*shape) * 10, real(*shape[axis:])], (1,), opset, axis=axis)


FUNCTIONS: dict[str, dict[str, Any]] = {
    "Celu": {"alpha": 0.7},
    "ThresholdedRelu": {"alpha": 0.5},
    "Shrink": {"bias": 0.1, "lambd": 0.4},
    "ReduceL1": {"axes": [1, 2]},
    "ReduceSumSquare": {"axes": [0, 2]},
    "ReduceLogSumExp": {"axes": [1], "keepdims": 0},
    "LpNormalization": {"p": 1, "axis": 1},
    "GlobalMaxPool": {},
}


@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions_of_several_kernels(op: str) -> None:
    check(op, [real(2, 3, 4)], **FUNCTIONS[op])


POWERS = {
    "0": np.float32(0),
    "-0.5": np.float32(-0.5),
    "1.5": np.float32(1.5),
    "7": np.int64(7),
    "-2": np.float32(-2),
    "several": np.array([4, 5, 0.5], np.float32),
    "more rows": np.array([[4], [4]], np.float32),
}


@pytest.mark.parametrize("name", POWERS)
def test_power(name: str) -> None:
    check("Pow", [np.abs(real(1, 3)) + np.float32(0.5), np.asarray(POWERS[name])], (1,))


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "ReduceLogSumExp"])
def test_exponentials_of_far_values(op: str, axis: int) -> None:
    check(op, [real(3, 5) * 400], **({"axes": [axis]} if op.startswith("Reduce") else {"axis": axis}))


@pytest.mark.parametrize("op", ["Identity", "Transpose", "Abs", "Not"])
def test_a_scalar(op: str) -> None:
    check(op, [mask() if op == "Not" else real()])


def test_log_of_a_sum() -> None:
    check("ReduceLogSum", [np.abs(real(2, 3, 4)) + np.float32(0.1)], axes=[1])


NONE = np.zeros(0, np.float32)
CROP = np.array([0, 0, 0.2, -0.2, 1, 1, 0.8, 1.1], np.float32)
RESIZES: dict[str, tuple[Array, Array, tuple[int, ...] | None, tuple[float, ...], dict[str, Any]]] = {
    "symmetric": (
        real(1, 2, 5, 6),
        NONE,
        None,
        (1, 1, 1.7, 0.6),
        {"coordinate_transformation_mode": "half_pixel_symmetric"},
    ),
    "scales that are not whole": (real(1, 2, 5, 6), NONE, None, (1, 1, 1.7, 0.6), {}),
    "crop": (
        real(1, 2, 5, 6),
        CROP,
        (1, 2, 7, 8),
        (),
        {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.0},
    ),
    "one pixel": (real(1, 2, 5, 6), NONE, (1, 2, 1, 5), (), {"coordinate_transformation_mode": "pytorch_half_pixel"}),
    "named axes": (real(1, 2, 5, 6), NONE, (9, 13), (), {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}),
    "antialias": (real(1, 2, 5, 6), NONE, (1, 2, 3, 4), (), {"antialias": 1}),
    "one spatial axis": (real(1, 2, 7), NONE, (1, 2, 14), (), {}),
    "three spatial axes": (real(1, 2, 3, 4, 5), NONE, (1, 2, 6, 8, 7), (), {}),
    "the last axis stays": (real(1, 4, 5, 2), NONE, (1, 7, 9, 2), (), {}),
}
RESIZE_MODES = {
    "nearest": {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    "linear": {"mode": "linear"},
    "cubic": {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
}
NOT_IN_ORT = {("antialias", "nearest"), *((case, "cubic") for case in ("one spatial axis", "three spatial axes"))}
CASES = [(case, mode) for case in RESIZES for mode in RESIZE_MODES if (case, mode) not in NOT_IN_ORT]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_resize(name: str, mode: str) -> None:
    x, roi, sizes, scales, attrs = RESIZES[name]
    arrays = [x, roi, np.array(scales, np.float32), *([] if sizes is None else [np.array(sizes, np.int64)])]
    check("Resize", arrays, range(1, len(arrays)), 19, **{**RESIZE_MODES[mode], **attrs})


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(("op", "opset"), [("Upsample", 9), ("Resize", 10)])
def test_resize_of_old(op: str, opset: int, mode: str) -> None:
    check(op, [real(1, 2, 5, 6), np.array([1, 1, 2, 2], np.float32)], (1,), opset, mode=mode)


SIZES = dict(zip("bhijklqd", (2, 3, 4, 5, 3, 6, 4, 7), strict=True))
EQUATIONS = (
    "bhqd,bhkd->bhqk",
    "bij,jk->bki",
    "bijk,bkl->bijl",
    "i,j->ij",
    "ij->i",
    "ij,kj->j",
    "bij,bjk,kl->bil",
    "ij,i",
)


@pytest.mark.parametrize("constant", [(), (0,)], ids=str)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation: str, constant: tuple[int, ...]) -> None:
    terms = equation.split("->")[0].split(",")
    operands = [real(*(SIZES[label] for label in term)) for term in terms]
    check("Einsum", operands, constant if len(terms) > 1 else (), equation=equation)


@pytest.mark.parametrize("attrs", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}], ids=str)
@pytest.mark.parametrize("axis", [0, -1])
def test_cumulative_sum(axis: int, attrs: dict[str, Any]) -> None:
    check("CumSum", [real(3, 4, 5), np.array(axis, np.int64)], (1,), **attrs)
