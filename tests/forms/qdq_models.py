"""Q/DQ graphs as PyTorch's exporter, NNCF and ONNX Runtime's quantiser write them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from form_models import Model, Net, WeightForm, f32

Body = Callable[[Net], "str | tuple[str, ...]"]
MODELS: dict[str, tuple[Body, tuple[str, ...]]] = {}  # name → model, the operators that it compiles to

PER_FILTER = WeightForm(axis=0)
PER_COLUMN = WeightForm(axis=1)
PLAIN = WeightForm()


def expects(*ops: str) -> Callable[[Body], Body]:
    def add(body: Body) -> Body:
        MODELS[body.__name__] = body, ops
        return body

    return add


def model_of(name: str) -> Model:
    net = Net()
    outputs = MODELS[name][0](net)
    return net.model(*((outputs,) if isinstance(outputs, str) else outputs))


def image(net: Net, dtype: str = "uint8", channels: int = 4) -> str:
    return net.activation(net.input("x", net.reals(1, channels, 8, 8)), dtype)


def rows(net: Net, *shape: int, dtype: str = "uint8") -> str:
    return net.activation(net.input("x", net.reals(*(shape or (2, 5, 16)))), dtype)


def filters(net: Net, form: WeightForm, *shape: int) -> str:
    return net.weight(net.reals(*(shape or (6, 4, 3, 3)), size=0.2), form)


# ---- NNCF and PyTorch: the weights stored as floats before QuantizeLinear, a float bias, Relu before QuantizeLinear


@expects("QuantizeLinear", "QLinearConv", "QuantizeLinear", "DequantizeLinear")
def conv_of_real_weights_with_a_real_bias(net: Net) -> str:
    weights = filters(net, WeightForm(axis=0, stored="reals"))
    return net.activation(net.node("Conv", image(net), weights, net.reals(6), pads=[1] * 4))


@expects("QuantizeLinear", "QLinearConv", "DequantizeLinear")
def conv_of_real_weights(net: Net) -> str:
    return net.activation(net.node("Conv", image(net), filters(net, WeightForm(axis=0, stored="reals")), pads=[1] * 4))


@expects("QuantizeLinear", "QLinearConv", "Relu", "QuantizeLinear", "DequantizeLinear")
def conv_relu(net: Net) -> str:
    out = net.node("Relu", net.node("Conv", image(net), filters(net, PER_FILTER), net.reals(6), pads=[1] * 4))
    return net.activation(out, low=0, high=6)


@expects("QuantizeLinear", "QLinearConv", "Clip", "QuantizeLinear", "DequantizeLinear")
def conv_clip_with_an_int32_bias(net: Net) -> str:
    scale, weights = f32(8 / 255), f32(np.linspace(0.01, 0.02, 6))
    x = image(net)
    w = net.node("DequantizeLinear", net.codes("int8", 6, 4, 3, 3), weights, np.zeros(6, np.int8), axis=0)
    b = net.node("DequantizeLinear", net.bias(6), f32(scale * weights), np.zeros(6, np.int32), axis=0)
    return net.activation(net.node("Clip", net.node("Conv", x, w, b), f32(0), f32(6)), low=0, high=6)


@expects("QuantizeLinear", "DequantizeLinear", "QLinearConv", "Add", "Relu", "QuantizeLinear", "DequantizeLinear")
def residual_sum_before_the_quantize(net: Net) -> str:
    x = image(net)
    conv = net.node("Conv", x, filters(net, PER_FILTER, 4, 4, 3, 3), net.reals(4), pads=[1] * 4)
    return net.activation(net.node("Relu", net.node("Add", conv, x)), low=0, high=7)


@expects("QuantizeLinear", "QLinearMatMul", "DequantizeLinear")
def transpose_of_the_weights(net: Net) -> str:
    weights = net.weight(net.reals(12, 16, size=0.3), PER_FILTER)
    return net.activation(net.node("MatMul", rows(net), net.node("Transpose", weights, perm=[1, 0])))


@expects("QuantizeLinear", "QLinearMatMul", "DequantizeLinear")
def transpose_of_real_weights(net: Net) -> str:
    weights = net.weight(net.reals(12, 16, size=0.3), WeightForm(axis=0, stored="reals"))
    return net.activation(net.node("MatMul", rows(net), net.node("Transpose", weights, perm=[1, 0])))


@expects("QuantizeLinear", "QLinearMatMul", "DequantizeLinear")
def reshape_of_the_weights(net: Net) -> str:
    weights = net.weight(net.reals(16, 3, 4, size=0.3), PLAIN)
    shaped = net.node("Reshape", weights, np.array([16, 12], np.int64))
    return net.activation(net.node("MatMul", rows(net), shaped))


@expects("QuantizeLinear", "QLinearMatMul", "Add", "QuantizeLinear", "DequantizeLinear")
def bias_in_a_node_of_its_own(net: Net) -> str:
    product = net.node("MatMul", rows(net), net.weight(net.reals(16, 12, size=0.3), PER_COLUMN))
    return net.activation(net.node("Add", product, net.reals(12)))


@expects("QuantizeLinear", "QGemm", "QuantizeLinear", "DequantizeLinear")
def linear_layer(net: Net) -> str:
    weights = net.weight(net.reals(12, 16, size=0.3), PER_FILTER)
    return net.activation(net.node("Gemm", rows(net, 5, 16), weights, net.reals(12), transB=1))


@expects(
    *(["QuantizeLinear"] * 3),
    *("Reshape", "Reshape", "Transpose", "Transpose", "MatMulInteger", "MatMulInteger", "QLinearMatMul"),
    *("SoftmaxInt8", "MatMulInteger", "QLinearMatMul", "DequantizeLinear"),
)
def attention_with_zero_points(net: Net) -> str:
    """Heads are split between DequantizeLinear and MatMul: Reshape and Transpose work on codes."""
    q, k, v = (net.activation(net.input(name, net.reals(6, 16)), low=-4, high=4.5) for name in "qkv")
    heads = [net.node("Reshape", each, np.array([6, 2, 8], np.int64)) for each in (q, k)]
    queries, keys = (net.node("Transpose", each, perm=perm) for each, perm in zip(heads, ([1, 0, 2], [1, 2, 0])))
    scores = net.activation(net.node("MatMul", queries, keys), low=-20, high=25)
    shares = net.activation(net.node("Softmax", scores, axis=-1), low=0, high=1)
    return net.activation(net.node("MatMul", shares, v), low=-3, high=4)


# ---- ONNX Runtime's forms, and what the standard allows


@expects("QuantizeLinear", "QLinearConv", "DequantizeLinear")
def weights_with_zero_points(net: Net) -> str:
    return net.activation(net.node("Conv", image(net), filters(net, WeightForm(axis=0, shift=5)), pads=[1] * 4))


@expects("QuantizeLinear", "QLinearConv", "DequantizeLinear")
def unsigned_weights_of_signed_codes(net: Net) -> str:
    x = image(net, "int8")
    return net.activation(net.node("Conv", x, filters(net, WeightForm("uint8", shift=-9))), "int8")


@expects("QuantizeLinear", "QLinearConv", "QuantizeLinear", "DequantizeLinear")
def depthwise_with_zero_points(net: Net) -> str:
    weights = filters(net, WeightForm(axis=0, shift=5), 6, 1, 3, 3)
    out = net.node("Conv", image(net, channels=6), weights, net.reals(6), group=6, pads=[1] * 4)
    return net.activation(out)


@expects("QuantizeLinear", "QLinearConv", "DepthToSpace", "QuantizeLinear", "DequantizeLinear")
def transposed_convolution_by_pixel(net: Net) -> str:
    weights = net.weight(net.reals(4, 6, 2, 2, size=0.2), PER_COLUMN)
    return net.activation(net.node("ConvTranspose", image(net), weights, net.reals(6), strides=[2, 2]))


@expects("QuantizeLinear", "ZeroStuff", "QLinearConv", "DequantizeLinear")
def transposed_convolution_with_zero_points(net: Net) -> str:
    weights = net.weight(net.reals(4, 6, 3, 3, size=0.2), WeightForm(axis=1, shift=5))
    return net.activation(net.node("ConvTranspose", image(net), weights, strides=[2, 2], pads=[1] * 4))


@expects("QuantizeLinear", "QLinearMatMul", "DequantizeLinear")
def axis_counted_from_the_end(net: Net) -> str:
    weights = net.weight(net.reals(16, 12, size=0.3), WeightForm(axis=1, negative_axis=True))
    return net.activation(net.node("MatMul", rows(net), weights))


@expects("QuantizeLinear", "QLinearMatMul", "DequantizeLinear")
def zero_points_omitted(net: Net) -> str:
    scale = f32(4 / 255)
    x = net.node("QuantizeLinear", net.input("x", np.abs(net.reals(2, 5, 16))), scale)
    weights = net.weight(net.reals(16, 12, size=0.3), WeightForm(zero="omitted"))
    return net.activation(net.node("MatMul", net.node("DequantizeLinear", x, scale), weights))


@expects("QuantizeLinear", "QLinearMatMul", "DequantizeLinear")
def scale_as_a_vector_of_one(net: Net) -> str:
    return net.activation(
        net.node("MatMul", rows(net), net.weight(net.reals(16, 12), WeightForm(flat=True))), low=-20, high=20
    )


@expects("QuantizeLinear", "QLinearMatMul", "DequantizeLinear", "QLinearMatMul", "DequantizeLinear")
def one_dequantize_for_two_readers(net: Net) -> tuple[str, str]:
    weights = net.weight(net.reals(16, 16, size=0.3), PER_COLUMN)
    first = net.activation(net.node("MatMul", rows(net), weights))
    return first, net.activation(net.node("MatMul", first, weights))


@expects("QuantizeLinear", "QuantizedUnary", "QLinearMatMul", "QuantizedUnary", "DequantizeLinear")
def pairs_back_to_back(net: Net) -> str:
    x = net.activation(rows(net, dtype="int8"), "uint8", low=-3.9, high=4.2)
    product = net.activation(net.node("MatMul", x, net.weight(net.reals(16, 12, size=0.3), PLAIN)), low=-5, high=5)
    return net.activation(product, "int8", low=-4.7, high=4.9)


@expects("QuantizeLinear", "QLinearMatMul", "QuantizeLinear", "DequantizeLinear")
def result_read_as_a_float_too(net: Net) -> tuple[str, str]:
    product = net.node("MatMul", rows(net), net.weight(net.reals(16, 12, size=0.3), PER_COLUMN))
    return product, net.activation(product)


@expects("QuantizeLinear", "QGemm", "Mul", "Add", "QuantizeLinear", "DequantizeLinear")
def gemm_with_alpha_and_beta(net: Net) -> str:
    weights = net.weight(net.reals(12, 16, size=0.3), PER_FILTER)
    out = net.node("Gemm", rows(net, 5, 16), weights, net.reals(12), transB=1, alpha=0.5, beta=0.25)
    return net.activation(out)


@expects("QuantizeLinear", "Transpose", "QGemm", "QuantizeLinear", "DequantizeLinear")
def gemm_of_a_transposed(net: Net) -> str:
    weights = net.weight(net.reals(16, 12, size=0.3), PER_COLUMN)
    return net.activation(net.node("Gemm", rows(net, 16, 5), weights, net.reals(12), transA=1))


@expects("QuantizeLinear", "QGemm", "DequantizeLinear")
def gemm_with_an_int32_bias(net: Net) -> str:
    scale, weights = f32(8 / 255), f32(np.linspace(0.01, 0.02, 12))
    w = net.node("DequantizeLinear", net.codes("int8", 12, 16), weights, np.zeros(12, np.int8), axis=0)
    b = net.node("DequantizeLinear", net.bias(12), f32(scale * weights), np.zeros(12, np.int32), axis=0)
    return net.activation(net.node("Gemm", rows(net, 5, 16), w, b, transB=1), low=-20, high=20)


@expects("QuantizeLinear", "DequantizeLinear", "Mul", "Add", "Pad", "QuantizeLinear", "DequantizeLinear")
def norm_and_pad_of_dequantized_parameters(net: Net) -> str:
    """What a node needs as constants, Quantize and Dequantize before each of them."""
    gamma, beta, mean, variance = (net.weight(net.reals(4, size=0.3), PLAIN) for _ in range(4))
    x = net.node("BatchNormalization", image(net), gamma, beta, mean, net.node("Mul", variance, variance))
    edge = net.node("DequantizeLinear", np.int8(5), f32(0.125), np.int8(1))
    return net.activation(net.node("Pad", x, np.array([0, 0, 1, 0, 0, 0, 0, 1], np.int64), edge))


@expects("QuantizeLinear", "DequantizeLinear", "MatMul", "QuantizeLinear", "DequantizeLinear")
def vector_by_matrix(net: Net) -> str:
    """Vectors stay in fixed point, where the weights are rounded to it."""
    return net.activation(net.node("MatMul", rows(net, 16), net.weight(net.reals(16, 12, size=0.3), PLAIN)))


@expects("QuantizeLinear", "QGemm", "QuantizeLinear", "DequantizeLinear")
def int32_bias_in_other_units(net: Net) -> str:
    """A float like any other: it is not in units of the product."""
    bias = net.node("DequantizeLinear", net.bias(12), f32(0.00041))
    weights = net.weight(net.reals(12, 16, size=0.3), PLAIN)
    return net.activation(net.node("Gemm", rows(net, 5, 16), weights, bias, transB=1))


@expects(*(["QuantizeLinear"] * 2), "MatMulInteger", "MatMulInteger", "QGemm", "DequantizeLinear")
def gemm_of_two_variables(net: Net) -> str:
    other = net.activation(net.input("b", net.reals(12, 16)))
    return net.activation(net.node("Gemm", rows(net, 5, 16), other, transB=1), low=-20, high=20)


@expects("QuantizeLinear", "QLinearMatMul", "DequantizeLinear")
def stack_of_constant_matrices(net: Net) -> str:
    weights = net.weight(net.reals(3, 16, 12, size=0.3), WeightForm(axis=2, shift=4))
    return net.activation(net.node("MatMul", rows(net, 3, 5, 16), weights))


@expects("QuantizeLinear", "DequantizeLinear", "MatMul", "QuantizeLinear", "DequantizeLinear")
def product_with_a_vector(net: Net) -> str:
    return net.activation(net.node("MatMul", rows(net, 5, 16), net.weight(net.reals(16, size=0.3), PLAIN)))


@expects("QuantizeLinear", "QLinearMatMul", "DequantizeLinear")
def constant_left_side(net: Net) -> str:
    weights = net.weight(net.reals(12, 16, size=0.3), WeightForm(shift=3))
    return net.activation(net.node("MatMul", weights, rows(net, 16, 5)))


@expects("QuantizeLinear", "DequantizeLinear", "MatMul", "QuantizeLinear", "DequantizeLinear")
def scales_along_the_summed_axis(net: Net) -> str:
    """No product of codes has these scales: fixed point."""
    return net.activation(net.node("MatMul", rows(net, 5, 16), net.weight(net.reals(16, 12, size=0.3), PER_FILTER)))


@expects("Gemm")
def weights_alone_quantised(net: Net) -> str:
    weights = net.weight(net.reals(12, 16, size=0.3), PER_FILTER)
    return net.node("Gemm", net.input("x", net.reals(5, 16)), weights, net.reals(12), transB=1)


@expects("QuantizeLinear", "DequantizeLinear", "Add", "QuantizeLinear", "DequantizeLinear")
def table_of_codes(net: Net) -> str:
    """An embedding: rows of a quantised constant."""
    table = net.node("Gather", net.weight(net.reals(8, 16), WeightForm("uint8")), np.array([1, 5, 2], np.int64), axis=0)
    return net.activation(net.node("Add", rows(net, 3, 16), table))
