"""QLinear operators of ONNX Runtime without their optional inputs, integer products, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from form_answers import check, judged_by_references
from form_models import CONTRIB, Model, Net, f32

from epu.cli.group import epu
from epu.errors import UnsupportedNode
from epu.front_end import import_model
from epu.hw_config import HWConfig
from epu.job import ChimeraJob

pytest.importorskip("tvm", reason="the Relay door needs TVM")

I8, U8 = np.int8, np.uint8


def codes(net: Net, name: str, dtype: str, *shape: int) -> str:
    return net.input(name, net.codes(dtype, *shape))


def without_zero_points(net: Net) -> str:
    """An absent zero point is 0 of uint8. ONNX Runtime 1.23 refuses or dies of these, other versions allow them."""
    x = net.node("QLinearSigmoid", codes(net, "x", "uint8", 3, 24), f32(0.05), "", f32(1 / 256), domain=CONTRIB)
    x = net.node("QLinearLeakyRelu", x, f32(1 / 256), "", f32(1 / 256), domain=CONTRIB, alpha=0.1)
    y = codes(net, "y", "uint8", 3, 24)
    total = net.node("QLinearAdd", x, f32(1 / 256), "", y, f32(0.01), "", f32(0.014), domain=CONTRIB)
    return net.node("QLinearMul", total, f32(0.014), "", y, f32(0.01), "", f32(0.03), domain=CONTRIB)


def gemm_without_bias_and_output_scale(net: Net) -> str:
    x, w = codes(net, "x", "uint8", 5, 24), net.codes("int8", 10, 24)
    return net.node("QGemm", x, f32(0.02), U8(117), w, f32(0.01), I8(9), domain=CONTRIB, transB=1, alpha=0.5)


def gemm_with_a_real_result(net: Net) -> str:
    x, w = codes(net, "x", "int8", 5, 24), net.codes("int8", 24, 10)
    scales, zeros = f32(np.linspace(0.01, 0.02, 10)), np.zeros(10, I8)
    return net.node("QGemm", x, f32(0.02), I8(7), w, scales, zeros, net.bias(10), domain=CONTRIB)


def convolution_with_an_empty_bias(net: Net) -> str:
    x, w = codes(net, "x", "uint8", 1, 4, 7, 7), net.codes("int8", 6, 4, 3, 3)
    return net.node("QLinearConv", x, f32(0.05), U8(4), w, f32(0.01), I8(0), f32(0.5), U8(3), "")


def softmax(net: Net) -> str:
    x = codes(net, "x", "int8", 3, 5, 24)
    return net.node("QLinearSoftmax", x, f32(0.05), I8(7), f32(1 / 200), I8(-128), domain=CONTRIB, axis=-1, opset=13)


def where(net: Net) -> str:
    chosen = net.random.integers(0, 2, (3, 24)).astype(bool)
    x, y = codes(net, "x", "int8", 3, 24), codes(net, "y", "int8", 3, 24)
    scales = f32(0.05), I8(7), y, f32(0.02), I8(-3), f32(0.06), I8(1)
    return net.node("QLinearWhere", chosen, x, *scales, domain=CONTRIB)


def integer_product_of_variables(net: Net) -> str:
    a, b = codes(net, "x", "uint8", 2, 5, 24), codes(net, "y", "int8", 2, 24, 10)
    return net.node("MatMulInteger", a, b, U8(3), I8(-7))


def integer_product_cast_and_scaled(net: Net) -> str:
    x, w = codes(net, "x", "uint8", 2, 5, 24), net.codes("uint8", 24, 10)
    product = net.node("MatMulInteger", x, w, U8(5), np.arange(100, 110).astype(U8))
    return net.node("Mul", net.node("Cast", product, to=onnx.TensorProto.FLOAT), f32(0.01))


def integer_convolution(net: Net) -> str:
    x, w = codes(net, "x", "uint8", 1, 4, 7, 7), net.codes("uint8", 6, 4, 3, 3)
    return net.node("ConvInteger", x, w, U8(3), U8(4), pads=[1, 1, 1, 1], strides=[2, 2])


def integer_product_to_float(net: Net) -> str:
    x, w = codes(net, "x", "uint8", 2, 5, 24), net.codes("int8", 24, 10)
    scales, zeros = f32(np.linspace(0.01, 0.02, 10)), np.full(10, 9, I8)
    return net.node("MatMulIntegerToFloat", x, w, f32(0.02), scales, U8(120), zeros, net.reals(10), domain=CONTRIB)


def vector_times_matrix(net: Net) -> str:
    a, b = codes(net, "x", "int8", 24), codes(net, "y", "int8", 24, 10)
    return net.node("QLinearMatMul", a, f32(0.02), I8(7), b, f32(0.01), I8(9), f32(0.2), I8(1))


def stacks_that_broadcast(net: Net) -> str:
    a, b = codes(net, "x", "uint8", 1, 5, 24), codes(net, "y", "uint8", 3, 24, 10)
    return net.node("QLinearMatMul", a, f32(0.02), U8(7), b, f32(0.01), U8(9), f32(0.2), U8(100))


CASES: dict[Callable[[Net], str], str] = {
    gemm_without_bias_and_output_scale: "float32",
    gemm_with_a_real_result: "float32",
    convolution_with_an_empty_bias: "uint8",
    softmax: "int8",
    where: "int8",
    integer_product_of_variables: "int32",
    integer_product_cast_and_scaled: "float32",
    integer_convolution: "int32",
    integer_product_to_float: "float32",
    vector_times_matrix: "int8",
    stacks_that_broadcast: "uint8",
}
FEW = [gemm_without_bias_and_output_scale, integer_product_cast_and_scaled, stacks_that_broadcast]


def model_of(body: Callable[[Net], str]) -> Model:
    net = Net()
    return net.model(body(net), dtype=CASES[body])


@pytest.mark.parametrize("body", FEW, ids=lambda body: body.__name__)
def test_optional_inputs_and_integer_products(body: Callable[[Net], str], tmp_path: Path) -> None:
    check(model_of(body), tmp_path, "ort")


@pytest.mark.slow
@pytest.mark.parametrize("rounding", ["exact", "ort"])
@pytest.mark.parametrize("body", CASES, ids=lambda body: body.__name__)
def test_every_optional_input(body: Callable[[Net], str], rounding: str, tmp_path: Path) -> None:
    check(model_of(body), tmp_path, rounding)


def test_zero_points_may_be_absent() -> None:
    net = Net()
    judged_by_references(net.model(without_zero_points(net), dtype="uint8"), "exact")


# ---- refused


def dynamic(net: Net) -> str:
    return net.node("DynamicQuantizeLinear", net.input("x", net.reals(3, 24)))


def sixteen_bits(net: Net) -> str:
    return net.node("QuantizeLinear", net.input("x", net.reals(3, 24)), f32(1e-4), np.int16(0))


def full_bias(net: Net) -> str:
    x, w = codes(net, "x", "int8", 5, 24), net.codes("int8", 24, 10)
    bias = net.random.integers(-9, 9, (5, 10)).astype(np.int32)
    return net.node("QGemm", x, f32(0.02), I8(7), w, f32(0.01), I8(0), bias, f32(0.2), I8(0), domain=CONTRIB)


REFUSED = {
    dynamic: r"'n_DynamicQuantizeLinear_0' .*scales must be known .*depend on the data\. Quantise statically",
    sixteen_bits: r"'n_QuantizeLinear_0' .*codes must be int8, uint8 or int32, found int16\. Quantise to eight bits",
    full_bias: r"'n_QGemm_0' .*one value or one per column, found shape \[5, 10\]\. Add it after the node",
}


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: body.__name__)
def test_what_is_refused_says_where_why_and_what_to_do(body: Callable[[Net], str]) -> None:
    net = Net(opset=21)
    with pytest.raises(UnsupportedNode, match=REFUSED[body]):
        import_model(net.model(body(net))[0])


# ---- float models


def test_a_float_model_needs_its_ranges_alone(tmp_path: Path) -> None:
    net = Net()
    hidden = net.node("Relu", net.node("Gemm", net.input("x", net.reals(4, 16)), net.reals(16, 32), net.reals(32)))
    made = net.model(net.node("Softmax", net.node("MatMul", hidden, net.reals(32, 8, size=0.1)), axis=-1))
    path = tmp_path / "float.onnx"
    onnx.save(made[0], path)
    done = CliRunner().invoke(
        epu, ["quantize", str(path), "-o", str(tmp_path / "out"), "--synthetic", "4", "--ranges-only"]
    )
    assert done.exit_code == 0, done.output
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["float.onnx.tranges"]
    job = ChimeraJob(path, HWConfig("QC-N"), tmp_path / "out/float.onnx.tranges", run_directory=tmp_path / "run")
    job.compile()
    result = job.validate_ort_iss(made[1])
    assert result.passed, result.failures
    assert {buffer.decode.kind for span in job.program.debug.kernels for buffer in span.outputs} == {"fx"}
