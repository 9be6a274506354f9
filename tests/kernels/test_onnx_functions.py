"""Functions, normalisations and resizes that the importer spells with other operators, against ONNX Runtime as in
``test_onnx_nodes``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_node import Array, check, mask, real


@pytest.mark.parametrize(("opset", "axis"), [(17, 1), (11, 1)])
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
QUICK = {
    ("symmetric", "nearest"),
    ("crop", "linear"),
    ("crop", "cubic"),
    ("antialias", "linear"),
    ("three spatial axes", "linear"),
}
CASES = [
    pytest.param(case, mode, marks=[] if (case, mode) in QUICK else pytest.mark.slow)
    for case in RESIZES
    for mode in RESIZE_MODES
    if (case, mode) not in NOT_IN_ORT
]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_resize(name: str, mode: str) -> None:
    x, roi, sizes, scales, attrs = RESIZES[name]
    arrays = [x, roi, np.array(scales, np.float32), *([] if sizes is None else [np.array(sizes, np.int64)])]
    check("Resize", arrays, range(1, len(arrays)), 19, **{**RESIZE_MODES[mode], **attrs})


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(("op", "opset"), [("Upsample", 9), ("Resize", 10)])
def test_resize_of_old(op: str, opset: int, mode: str) -> None:
    check(op, [real(1, 2, 5, 6), np.array([1, 1, 2, 2], np.float32)], (1,), opset, mode=mode)
