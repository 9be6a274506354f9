"""The list of cases that a quantised compiler is known to get wrong, each one test through the public interface."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from case_models import CONTRIB, Array, Net, iss, ort

from epu import HWConfig, quadric_quantize
from epu.ranges import load_ranges

ROUNDINGS = ("exact", "ort")
TIES, ROUNDED = [-3, -1, 1, 3], [-2, 0, 0, 2]  # halves of -3 … 3 to even


def random_int8(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, shape, np.int8)


def assert_like_ort(net: Net, inputs: dict[str, Array], folder: Path, **options: Any) -> None:
    """Equal bytes with rounding "ort", at most an LSB of an int8 result with "exact"."""
    model = net.model()
    expected = ort(model, inputs)
    repeated, exact = (iss(model, inputs, folder, rounding=each, **options) for each in ("ort", "exact"))
    for name, values in expected.items():
        assert np.array_equal(repeated[name], values), name
        assert np.abs(exact[name].astype(np.int64) - values.astype(np.int64)).max(initial=0) <= 1, name


def gemm_net(a_scale: Any, b: Array, b_scale: Any, y_scale: float, rows: int, bias: Array | None = None) -> Net:
    """QGemm of [rows, k] by b [k, n]."""
    k, n = b.shape
    net = Net({"a": ("int8", [rows, k])}, {"y": ("int8", [rows, n])})
    third = net.constant("bias", bias, np.int32) if bias is not None else ""
    quantities = net.quantity("a", a_scale), net.quantity("b", b_scale), net.quantity("y", y_scale)
    names = ["a", *quantities[0], net.constant("b", b), *quantities[1], third, *quantities[2]]
    net.node("QGemm", names, "y", CONTRIB)
    return net


def conv_net(w: Array, shape: list[int], out: list[int], scales: tuple[Any, Any, Any], **attributes: Any) -> Net:
    net = Net({"x": ("int8", shape)}, {"y": ("int8", out)})
    x, weight, y = (net.quantity(name, scale) for name, scale in zip("xwy", scales))
    net.node("QLinearConv", ["x", *x, net.constant("w", w), *weight, *y], "y", **attributes)
    return net


# ---- exact ties


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_ties_of_conv_go_to_even(rounding: str, tmp_path: Path) -> None:
    """All scales 0.5: an accumulator counts half LSBs."""
    net = conv_net(np.ones((1, 1, 1, 1), np.int8), [1, 1, 1, 4], [1, 1, 1, 4], (0.5, 0.5, 0.5))
    x = {"x": np.array(TIES, np.int8).reshape(1, 1, 1, 4)}
    assert ort(net.model(), x)["y"].ravel().tolist() == ROUNDED
    assert iss(net.model(), x, tmp_path, rounding=rounding)["y"].ravel().tolist() == ROUNDED


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_ties_of_gemm_go_to_even(rounding: str, tmp_path: Path) -> None:
    net = gemm_net(0.5, np.ones((1, 1), np.int8), 0.5, 0.5, 4)
    a = {"a": np.array(TIES, np.int8).reshape(4, 1)}
    assert ort(net.model(), a)["y"].ravel().tolist() == ROUNDED
    assert iss(net.model(), a, tmp_path, rounding=rounding)["y"].ravel().tolist() == ROUNDED


# ---- concatenations


def test_concat_of_one_input_between_convolutions(tmp_path: Path) -> None:
    net = conv_net(random_int8(1, 4, 2, 3, 3), [1, 2, 8, 8], [1, 3, 8, 8], (0.02, 0.01, 0.3), pads=[1, 1, 1, 1])
    net.rename("c")
    mid, last = net.quantity("mid", 0.25), net.quantity("last", 0.2)
    first = ("y_scale", "y_zero")
    net.node("QLinearConcat", [*mid, "c", *first], "k", CONTRIB, axis=1)
    weights = [net.constant("w2", random_int8(2, 3, 4, 1, 1)), *net.quantity("w2", 0.01)]
    net.node("QLinearConv", ["k", *mid, *weights, *last], "y")
    assert_like_ort(net, {"x": random_int8(3, 1, 2, 8, 8)}, tmp_path)


def test_slice_of_width_zero_before_a_concat(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Calibrated and compiled: an empty tensor has no range, and no kernel."""
    net = Net({"x": ("float32", [1, 4, 6])}, {"y": ("float32", [1, 4, 6])})
    bounds = [net.constant(name, [at], np.int64) for name, at in (("from", 3), ("to", 3), ("axis", 2))]
    net.node("Relu", ["x"], "r")
    net.node("Slice", ["r", *bounds], "empty")
    net.node("Concat", ["r", "empty"], "joined", axis=2)
    net.node("MatMul", ["joined", net.constant("w", np.eye(6) / 3, np.float32)], "y")
    samples = [{"x": np.random.default_rng(seed).standard_normal((1, 4, 6)).astype(np.float32)} for seed in range(3)]
    with caplog.at_level(logging.INFO, "epu"):
        done = quadric_quantize(net.model(), output_folder=tmp_path, calibration_data=samples)
    assert "empty" in caplog.text
    model = onnx.load(done.qmodel_path)
    found = iss(model, samples[0], tmp_path, ranges=Path(done.tranges_path))["y"]
    assert np.abs(found - ort(model, samples[0])["y"]).max() < 0.03


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_concat_of_constants_and_a_variable(rounding: str, tmp_path: Path) -> None:
    """Constants within a tuple of operands, alone and beside a variable."""
    net = Net({"x": ("int8", [1, 3, 4])}, {"y": ("int8", [1, 7, 4]), "z": ("int8", [1, 3, 4])})
    c, d, y, x = (net.quantity(name, scale) for name, scale in (("c", 0.1), ("d", 0.3), ("y", 0.2), ("x", 0.2)))
    first = [net.constant("c", random_int8(1, 1, 2, 4)), *c]
    second = [net.constant("d", random_int8(2, 1, 1, 4)), *d]
    net.node("QLinearConcat", [*y, *first, "x", *x, *second, *second], "y", CONTRIB, axis=1)
    net.node("QLinearConcat", [*y, *first, *second], "both", CONTRIB, axis=1)
    net.node("QLinearAdd", ["both", *y, "x", *x, *d], "z", CONTRIB)
    inputs = {"x": random_int8(3, 1, 3, 4)}
    found, expected = iss(net.model(), inputs, tmp_path, rounding=rounding), ort(net.model(), inputs)
    assert all(np.array_equal(found[name], expected[name]) for name in ("y", "z"))


# ---- scales


def test_bias_beyond_int32_is_named_and_does_not_wrap(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Input and weight scales of 1e-6 make a bias of 10 into 10**13 steps; the layer and what it costs are said."""
    size, limit = 4, np.float32(127e-6)
    net = Net({"x": ("float32", [2, size])}, {"y": ("float32", [2, size])})
    weights = np.full((size, size), limit, np.float32) * np.sign(random_int8(1, size, size) + 0.5).astype(np.float32)
    bias = net.constant("bias", np.full(size, 10), np.float32)
    net.node("Gemm", ["x", net.constant("w", weights), bias], "y")
    samples = [{"x": np.linspace(-limit, limit, 2 * size, dtype=np.float32).reshape(2, size)}]
    with caplog.at_level(logging.WARNING, "epu"):
        done = quadric_quantize(net.model(), output_folder=tmp_path, calibration_data=samples)
    (said,) = [record.getMessage() for record in caplog.records if "bias" in record.getMessage()]
    for part in ("layer 'y_node'", "bias of 10", "2**31", "raised from 1e-06 to 0.00465", "0 of 127 steps"):
        assert part in said
    model = onnx.load(done.qmodel_path)
    found = iss(model, samples[0], tmp_path, ranges=Path(done.tranges_path))["y"]
    assert np.array_equal(found, ort(model, samples[0])["y"])
    assert np.allclose(found, 10, atol=0.1)


COLUMN_SCALES = [2.0**-1, 2.0**-2, 2.0**-3, 2.0**-4]


def column_weights() -> Array:
    """[12, 4] with an all-zero column."""
    weights = random_int8(5, 12, 4)
    weights[:, 2] = 0
    return weights


def test_matmul_with_a_scale_per_column(tmp_path: Path) -> None:
    net = Net({"a": ("int8", [6, 12])}, {"y": ("int8", [6, 4])})
    a, b, y = net.quantity("a", 0.5), net.quantity("b", COLUMN_SCALES), net.quantity("y", 64.0)
    net.node("QLinearMatMul", ["a", *a, net.constant("b", column_weights()), *b, *y], "y")
    assert_like_ort(net, {"a": random_int8(6, 6, 12)}, tmp_path)


def test_gemm_with_a_scale_per_column(tmp_path: Path) -> None:
    net = gemm_net(0.5, column_weights(), COLUMN_SCALES, 64.0, 6, np.array([5, -7, 300, 1 << 12]))
    assert_like_ort(net, {"a": random_int8(6, 6, 12)}, tmp_path)


# ---- one operator said in two ways


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_conv_of_one_dimension_is_that_of_two(rounding: str, tmp_path: Path) -> None:
    w, x = random_int8(7, 5, 3, 4), random_int8(8, 1, 3, 21)
    scales = (0.02, [0.01, 0.02, 0.03, 0.005, 0.01], 0.4)
    line = conv_net(w, [1, 3, 21], [1, 5, 10], scales, strides=[2], pads=[1, 1])
    plane = conv_net(w[:, :, None], [1, 3, 1, 21], [1, 5, 1, 10], scales, strides=[1, 2], pads=[0, 1, 0, 1])
    flat = iss(line.model(), {"x": x}, tmp_path, rounding=rounding)["y"]
    assert np.array_equal(flat[:, :, None], iss(plane.model(), {"x": x[:, :, None]}, tmp_path, rounding=rounding)["y"])
    if rounding == "ort":
        assert np.array_equal(flat, ort(line.model(), {"x": x})["y"])


# ---- extremes


def test_nan_in_calibration_is_named_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = Net({"x": ("float32", [2, 4])}, {"y": ("float32", [2, 4])})
    net.node("Sqrt", ["x"], "root")  # NaN of a negative number
    net.node("MatMul", ["root", net.constant("w", np.eye(4) / 2, np.float32)], "y")
    samples = [{"x": np.array([[-1, 4, 9, 16], [1, 2, 3, 4]], np.float32)}]
    with caplog.at_level(logging.WARNING, "epu"):
        done = quadric_quantize(net.model(), output_folder=tmp_path, calibration_data=samples)
    assert any("root" in record.getMessage() and "NaN" in record.getMessage() for record in caplog.records)
    assert np.isfinite(np.array(list(load_ranges(done.tranges_path).values()))).all()


def lowest(*shape: int) -> Array:
    return np.full(shape, -128, np.int8)


@pytest.mark.parametrize("y_scale", [1.0, 2.0**-4])
def test_lowest_code_everywhere(y_scale: float, tmp_path: Path) -> None:
    """(-128)**2 summed: nothing wraps, the result saturates."""
    conv = conv_net(lowest(3, 4, 3, 3), [1, 4, 6, 6], [1, 3, 4, 4], (1.0, 1.0, y_scale * 4e4))
    assert_like_ort(conv, {"x": lowest(1, 4, 6, 6)}, tmp_path)
    gemm = gemm_net(1.0, lowest(33, 5), 1.0, y_scale * 4e4, 7, np.full(5, -(2**31) + 1))
    assert_like_ort(gemm, {"a": lowest(7, 33)}, tmp_path)


def test_lowest_code_of_elementwise_operators(tmp_path: Path) -> None:
    net = Net({"a": ("int8", [3, 5])}, {name: ("int8", [3, 5]) for name in ("sum", "product", "leaky")})
    q = net.quantity("q", 0.5)
    net.node("QLinearAdd", ["a", *q, net.constant("b", lowest(3, 5)), *q, *q], "sum", CONTRIB)
    net.node("QLinearMul", ["a", *q, "b", *q, *q], "product", CONTRIB)
    net.node("QLinearLeakyRelu", ["a", *q, *q], "leaky", CONTRIB, alpha=0.3)
    assert_like_ort(net, {"a": lowest(3, 5)}, tmp_path)


# ---- the machine


def everything() -> Net:
    """Convolution, product, sum and transposition of awkward extents."""
    net = conv_net(random_int8(1, 6, 3, 3, 3), [1, 3, 37, 11], [37, 11], (0.02, 0.01, 0.2), pads=[1, 1, 1, 1])
    net.rename("c")
    q = ("y_scale", "y_zero")
    net.node("Transpose", ["c"], "t", perm=[0, 2, 3, 1])
    net.node("Reshape", ["t", net.constant("flat", [37, 66], np.int64)], "f")
    b = [net.constant("b", random_int8(2, 66, 11)), *net.quantity("b", 0.01)]
    net.node("QLinearMatMul", ["f", *q, *b, *q], "p")
    net.node("QLinearAdd", ["p", *q, net.constant("d", random_int8(3, 11)), *q, *q], "y", CONTRIB)
    return net


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_the_machine_never_changes_a_value(rounding: str, tmp_path: Path) -> None:
    """MACs per PE, the size of the array and so the tiles, and the OCM, that cuts kernels into parts."""
    x, model = {"x": random_int8(4, 1, 3, 37, 11)}, everything().model()
    machines = [
        HWConfig("QC-N"),
        HWConfig("QC-N", macs_per_pe=16),
        HWConfig("QC-P"),
        HWConfig("QC-U"),
        HWConfig("QC-N", ocm_size="16kB"),
        HWConfig("QC-U", ocm_size="8kB"),
    ]
    found = [iss(model, x, tmp_path, rounding=rounding, hw=hw)["y"] for hw in machines]
    assert all(np.array_equal(found[0], each) for each in found[1:])
    if rounding == "ort":
        assert np.array_equal(found[0], ort(model, x)["y"])
