"""Q/DQ graphs of every exporter: all node outputs seen and right, and the heavy operators on codes where the form allows it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from form_answers import check, drawn
from form_models import Model
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from qdq_models import MODELS, model_of

pytest.importorskip("tvm", reason="the Relay door needs TVM")

SUMS = {"MatMulInteger", "ConvInteger"}  # of codes, for zero points: how many depends on the codes drawn
FEW = (
    *("conv_of_real_weights_with_a_real_bias", "conv_clip_with_an_int32_bias", "attention_with_zero_points"),
    *("transpose_of_real_weights", "transposed_convolution_with_zero_points", "pairs_back_to_back"),
    *("gemm_of_a_transposed", "int32_bias_in_other_units", "gemm_with_an_int32_bias", "vector_by_matrix"),
    *("norm_and_pad_of_dequantized_parameters",),
)


def check_form(name: str, folder: Path, rounding: str) -> None:
    ops = check(model_of(name), folder, rounding)
    expected = MODELS[name][1]
    assert [op for op in ops if op not in SUMS] == [op for op in expected if op not in SUMS]
    assert SUMS & set(ops) >= SUMS & set(expected)


@pytest.mark.parametrize("name", FEW)
def test_a_form_is_right_and_on_codes(name: str, tmp_path: Path) -> None:
    check_form(name, tmp_path, "exact")


@pytest.mark.slow
@pytest.mark.parametrize("rounding", ["exact", "ort"])
@pytest.mark.parametrize("name", MODELS)
def test_every_form_is_right_and_on_codes(name: str, rounding: str, tmp_path: Path) -> None:
    check_form(name, tmp_path, rounding)


# ---- ONNX Runtime's own quantiser


def float_model() -> Model:
    """Convolutions with and without Relu, a residual sum, a pool, a matrix product of two variables, a Gemm."""
    from form_models import Net

    net = Net()
    x = net.input("x", net.reals(1, 4, 8, 8))
    conv = net.node("Relu", net.node("Conv", x, net.reals(4, 4, 3, 3, size=0.2), net.reals(4), pads=[1] * 4))
    depthwise = net.node("Conv", conv, net.reals(4, 1, 3, 3, size=0.4), net.reals(4), pads=[1] * 4, group=4)
    total = net.node("Add", depthwise, conv)
    pooled = net.node("MaxPool", total, kernel_shape=[2, 2], strides=[2, 2])
    flat = net.node("Reshape", pooled, np.array([4, 16], np.int64))
    product = net.node("MatMul", flat, net.node("Transpose", flat, perm=[1, 0]))
    return net.model(net.node("Gemm", product, net.reals(6, 4, size=0.3), net.reals(6), transB=1))


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feeds: dict[str, np.ndarray]) -> None:  # type: ignore[type-arg]
        self.left = [{name: drawn(data, seed) for name, data in feeds.items()} for seed in range(3)]

    def get_next(self) -> dict[str, np.ndarray] | None:  # type: ignore[type-arg]
        return self.left.pop() if self.left else None


def quantised(folder: Path, layout: str, activations: str, weights: str, symmetric: bool, options: str) -> Model:
    model, feeds = float_model()
    onnx.save(model, folder / "float.onnx")
    kinds = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}
    quantize_static(
        folder / "float.onnx",
        folder / "ort.onnx",
        Samples(feeds),
        quant_format=QuantFormat.QDQ if layout == "qdq" else QuantFormat.QOperator,
        activation_type=kinds[activations],
        weight_type=kinds[weights],
        per_channel="per_channel" in options,
        reduce_range="reduce_range" in options,
        extra_options={
            "ActivationSymmetric": symmetric,
            "WeightSymmetric": symmetric or weights == "int8" and "weights" not in options,
            "DedicatedQDQPair": "dedicated" in options,
            "AddQDQPairToWeight": "pair" in options,
            "QuantizeBias": "real_bias" not in options,
        },
    )
    return onnx.load(folder / "ort.onnx"), feeds


OPTIONS = ("", "per_channel", "reduce_range", "dedicated", "pair", "per_channel pair real_bias", "weights")


@pytest.mark.parametrize(
    ("layout", "activations", "weights", "symmetric", "options"),
    [("qoperator", "uint8", "uint8", False, ""), ("qdq", "uint8", "int8", False, "per_channel pair real_bias")],
)
def test_the_quantiser_of_onnx_runtime(
    layout: str, activations: str, weights: str, symmetric: bool, options: str, tmp_path: Path
) -> None:
    check(quantised(tmp_path, layout, activations, weights, symmetric, options), tmp_path)


KINDS = [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")]
CHOICES = [
    (layout, *kinds, symmetric, options)
    for layout, kinds, symmetric, options in product(("qoperator", "qdq"), KINDS, (True, False), OPTIONS)
    if not (layout == "qoperator" and kinds[1] == "uint8" and not symmetric and "per_channel" in options)
]  # ONNX Runtime's QLinearConv has one zero point for all filters


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "activations", "weights", "symmetric", "options"), CHOICES)
def test_every_option_of_the_quantiser(
    layout: str, activations: str, weights: str, symmetric: bool, options: str, tmp_path: Path
) -> None:
    check(quantised(tmp_path, layout, activations, weights, symmetric, options), tmp_path, "ort")
