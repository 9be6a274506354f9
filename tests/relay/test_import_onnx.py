"""The importer against ONNX Runtime: values, shapes, spans, time, refusals."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from relay_models import Builder, attention, codes, normal, q, qlinear_network, tables
from relay_running import built_outputs, calls, ort_outputs

from epu.errors import UnsupportedNode, UserError
from epu.relay_passes.import_onnx import import_onnx
from epu.relay_passes.to_graph import to_graph
from epu.relay_passes.tvm_relay import span_name

X4 = normal(1, 4, 7, 9)
X3 = normal(2, 5, 6, seed=3)
POSITIVE = np.abs(X3) + np.float32(0.1)
I64 = np.int64


def array(*values: int) -> Any:
    return np.array(values, I64)


# id -> (op, inputs after the first, first input, opset, attributes)
CASES: dict[str, tuple[str, list[Any], Any, int, dict[str, Any]]] = {
    "add": ("Add", [normal(6)], X3, 17, {}),
    "sub": ("Sub", [normal(5, 1)], X3, 17, {}),
    "sum": ("Sum", [normal(6), normal(5, 1)], X3, 17, {}),
    "mean": ("Mean", [normal(6), normal(5, 1)], X3, 17, {}),
    "gather_elements": ("GatherElements", [np.array([[[0, -1, 1]], [[2, 0, -2]]], I64)], X3, 17, {"axis": 1}),
    "gather_nd": ("GatherND", [np.array([[1, -1], [0, 2]], I64)], X3, 17, {}),
    "gather_nd_batch": ("GatherND", [np.array([[1, 0], [0, 2]], I64)], X3, 17, {"batch_dims": 1}),
    "scatter_elements": ("ScatterElements", [np.array([[[4, -2, 1]]], I64), normal(1, 1, 3)], X3, 17, {"axis": 2}),
    "scatter_nd": ("ScatterND", [np.array([[1, -1], [0, 2]], I64), normal(2, 6)], X3, 17, {}),
    "compress": ("Compress", [np.array([True, False, True])], X3, 17, {"axis": 1}),
    "compress_flat": ("Compress", [np.array([False, True, True])], X3, 17, {}),
    "reverse_sequence": ("ReverseSequence", [array(4, 2)], X3, 17, {"batch_axis": 0, "time_axis": 1}),
    "trilu": ("Trilu", [np.array(1, I64)], X3, 17, {"upper": 0}),
    "mul": ("Mul", [normal(2, 1, 6)], X3, 17, {}),
    "div": ("Div", [np.float32(3)], X3, 17, {}),
    "pow": ("Pow", [np.float32(2)], X3, 17, {}),
    "pow_int_exponent": ("Pow", [np.array(3, I64)], X3, 17, {}),
    "max": ("Max", [np.float32(0.2), normal(6)], X3, 17, {}),
    "sqrt": ("Sqrt", [], POSITIVE, 17, {}),
    "exp": ("Exp", [], X3, 17, {}),
    "log": ("Log", [], POSITIVE, 17, {}),
    "erf": ("Erf", [], X3, 17, {}),
    "tanh": ("Tanh", [], X3, 17, {}),
    "neg": ("Neg", [], X3, 17, {}),
    "sigmoid": ("Sigmoid", [], X3, 17, {}),
    "relu": ("Relu", [], X3, 17, {}),
    "leaky_relu": ("LeakyRelu", [], X3, 17, {"alpha": 0.2}),
    "hard_sigmoid": ("HardSigmoid", [], X3 * 3, 17, {"alpha": 0.3, "beta": 0.4}),
    "hard_sigmoid_defaults": ("HardSigmoid", [], X3 * 3, 17, {}),
    "hard_swish": ("HardSwish", [], X3 * 3, 17, {}),
    "clip_inputs": ("Clip", [np.float32(-0.5), np.float32(0.75)], X3, 13, {}),
    "clip_low_only": ("Clip", [np.float32(-0.5)], X3, 13, {}),
    "clip_attributes": ("Clip", [], X3, 6, {"min": -0.25, "max": 0.5}),
    "softmax_13": ("Softmax", [], X3, 13, {"axis": 1}),
    "softmax_default": ("Softmax", [], X3, 13, {}),
    "softmax_11_over_two_axes": ("Softmax", [], X3, 11, {"axis": 1}),
    "layer_norm": ("LayerNormalization", [normal(6), normal(6, seed=1)], X3, 17, {"epsilon": 1e-3}),
    "layer_norm_without_bias": ("LayerNormalization", [normal(6)], X3, 17, {}),
    "reduce_mean": ("ReduceMean", [], X3, 13, {"axes": [-1], "keepdims": 1}),
    "reduce_mean_18": ("ReduceMean", [array(1)], X3, 18, {"keepdims": 0}),
    "reduce_all": ("ReduceMean", [], X3, 13, {"keepdims": 0}),
    "reduce_max": ("ReduceMax", [], X3, 13, {"axes": [0, 2]}),
    "reshape": ("Reshape", [array(0, -1, 3)], X3, 17, {}),
    "flatten": ("Flatten", [], X3, 17, {"axis": 2}),
    "flatten_negative": ("Flatten", [], X3, 17, {"axis": -1}),
    "squeeze": ("Squeeze", [array(0)], X4, 17, {}),
    "squeeze_11": ("Squeeze", [], X4, 11, {"axes": [0]}),
    "unsqueeze": ("Unsqueeze", [array(0, -1)], X3, 17, {}),
    "unsqueeze_11": ("Unsqueeze", [], X3, 11, {"axes": [1, 3]}),
    "transpose": ("Transpose", [], X3, 17, {"perm": [2, 0, 1]}),
    "transpose_default": ("Transpose", [], X3, 17, {}),
    "concat": ("Concat", [normal(2, 1, 6)], X3, 17, {"axis": -2}),
    "slice": ("Slice", [array(1), array(4), array(1)], X3, 17, {}),
    "slice_to_the_end": ("Slice", [array(-3), array(2**62), array(2), array(2)], X3, 17, {}),
    "slice_backwards": ("Slice", [array(-1), array(-(2**62)), array(2), array(-1)], X3, 17, {}),
    "slice_9": ("Slice", [], X3, 9, {"starts": [1, 0], "ends": [5, 3], "axes": [1, 2]}),
    "gather": ("Gather", [array(3, -1, 0)], X3, 17, {"axis": 1}),
    "gather_scalar": ("Gather", [np.array(-2, I64)], X3, 17, {"axis": 1}),
    "identity": ("Identity", [], X3, 17, {}),
    "dropout": ("Dropout", [], X3, 17, {}),
    "cast": ("Cast", [], X3, 17, {"to": onnx.TensorProto.INT32}),
    "expand": ("Expand", [array(3, 1, 5, 6)], X3[:, :1][:1], 17, {}),
    "tile": ("Tile", [array(2, 1, 3)], X3, 17, {}),
    "pad": ("Pad", [array(0, 1, 2, 1, 0, 3), np.array(2.5, np.float32)], X3, 17, {}),
    "pad_negative": ("Pad", [array(0, -1, 2, 0, 0, -2)], X3, 17, {}),
    "pad_axes": ("Pad", [array(1, 2), "", array(-1)], X3, 18, {"mode": "edge"}),
    "pad_reflect": ("Pad", [array(0, 1, 2, 0, 3, 4)], X3, 17, {"mode": "reflect"}),
    "pad_2": ("Pad", [], X3, 10, {"pads": [0, 1, 0, 0, 0, 2], "value": -1.0}),
    "depth_to_space": ("DepthToSpace", [], X4, 17, {"blocksize": 2, "mode": "CRD"}),
    "space_to_depth": ("SpaceToDepth", [], normal(2, 3, 4, 6), 17, {"blocksize": 2}),
    "max_pool": ("MaxPool", [], X4, 17, {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 0, 1]}),
    "max_pool_ceil": ("MaxPool", [], X4, 17, {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    "max_pool_same": ("MaxPool", [], X4, 17, {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "average_pool": ("AveragePool", [], X4, 17, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "average_pool_with_pad": (
        "AveragePool",
        [],
        X4,
        17,
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    "global_average_pool": ("GlobalAveragePool", [], X4, 17, {}),
    "matmul_2d": ("MatMul", [normal(6, 3)], X3, 17, {}),
    "matmul_stack": ("MatMul", [normal(2, 6, 3)], X3, 17, {}),
    "matmul_broadcast": ("MatMul", [normal(3, 1, 6, 4)], X3, 17, {}),
    "matmul_vector": ("MatMul", [normal(6)], X3, 17, {}),
    "matmul_vector_left": ("MatMul", [normal(6, 3)], normal(6, seed=4), 17, {}),
    "gemm": ("Gemm", [normal(5, 4), normal(4)], normal(3, 5), 17, {"alpha": 0.5, "beta": 2.0}),
    "gemm_transposed": ("Gemm", [normal(4, 5)], normal(5, 3), 17, {"transA": 1, "transB": 1}),
    "conv": ("Conv", [normal(6, 4, 3, 3), normal(6)], X4, 17, {"pads": [1, 0, 1, 2], "strides": [2, 1]}),
    "conv_groups": ("Conv", [normal(4, 1, 3, 3)], X4, 17, {"group": 4, "dilations": [2, 1]}),
    "conv_same_lower": ("Conv", [normal(2, 4, 2, 2)], X4, 17, {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "conv_transpose": (
        "ConvTranspose",
        [normal(4, 3, 3, 2), normal(3)],
        X4,
        17,
        {"strides": [2, 2], "pads": [1, 0, 0, 1]},
    ),
    "conv_transpose_extra": (
        "ConvTranspose",
        [normal(4, 3, 2, 2)],
        X4,
        17,
        {"strides": [2, 2], "output_padding": [1, 1]},
    ),
    "batch_norm": ("BatchNormalization", [normal(4), normal(4), normal(4), np.abs(normal(4)) + 1], X4, 15, {}),
    "resize_nearest": (
        "Resize",
        ["", np.array([1, 1, 2, 2], np.float32)],
        X4,
        13,
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    "resize_nearest_default": ("Resize", ["", np.array([1, 1, 3, 2], np.float32)], X4, 13, {}),
    "resize_nearest_ceil": (
        "Resize",
        ["", np.array([1, 1, 2, 2], np.float32)],
        X4,
        13,
        {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"},
    ),
    "resize_10": ("Resize", [np.array([1, 1, 2, 3], np.float32)], X4, 10, {}),
    "resize_linear": ("Resize", ["", "", array(1, 4, 10, 14)], X4, 13, {"mode": "linear"}),
    "conv_1d": ("Conv", [normal(3, 5, 3)], X3, 17, {"pads": [1, 1]}),
}


@pytest.mark.parametrize("case", CASES)
def test_float_op_equals_onnx_runtime(case: str) -> None:
    op, more, first, opset, attributes = CASES[case]
    grow = Builder(opset)
    out = grow.node(op, ["x", *more], "node", **attributes)
    model, inputs = grow.model({"x": first}, [out]), {"x": first}
    module, params, names = import_onnx(model)
    assert not params
    (expected,) = ort_outputs(model, inputs)
    (found,) = built_outputs(module, inputs)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert {span_name(call.span) for call in calls(module["main"])} == {"node"}
    assert names == {("node", 0): out}


def test_a_product_of_two_computed_operands() -> None:
    grow = Builder()
    out = grow.node("MatMul", ["a", "b"])
    inputs = {"a": normal(3, 1, 4, 5), "b": normal(2, 5, 6)}
    model = grow.model(inputs, [out])
    np.testing.assert_allclose(
        built_outputs(import_onnx(model)[0], inputs)[0], ort_outputs(model, inputs)[0], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("network", [qlinear_network, tables, attention])
def test_quantised_network_is_within_a_few_steps_of_onnx_runtime(network: Any) -> None:
    """TVM's host arithmetic rounds otherwise than ORT; the EPU's does not go through it."""
    model, inputs = network()
    (expected,) = ort_outputs(model, inputs)
    (found,) = built_outputs(import_onnx(model)[0], inputs)
    step = float(np.min(np.diff(np.unique(expected))))
    assert np.max(np.abs(found - expected)) <= 4 * step


@pytest.mark.parametrize("network", [qlinear_network, tables, attention])
def test_every_node_has_calls_with_its_name_and_the_last_one_is_its_output(network: Any) -> None:
    model, _ = network()
    module, _, names = import_onnx(model)
    last = {span_name(call.span): call for call in calls(module["main"])}
    assert list(names) == [(node.name, 0) for node in model.graph.node]
    assert set(last) == {node.name for node in model.graph.node}
    readers = {arg for call in calls(module["main"]) for arg in call.args}
    inner = [call for call in calls(module["main"]) if call not in last.values()]
    assert all(call in readers for call in inner)


def test_each_output_of_a_split_keeps_its_name() -> None:
    grow = Builder()
    node = onnx.helper.make_node("Split", ["x", grow.constant(array(1, 3, 1))], ["first", "second", "third"], "split")
    node.attribute.append(onnx.helper.make_attribute("axis", 1))
    grow.nodes.append(node)
    model = grow.model({"x": X3}, ["third", "first", "second"])
    module, _, names = import_onnx(model)
    assert names == {("split", 0): "first", ("split", 1): "second", ("split", 2): "third"}
    for found, expected in zip(built_outputs(module, {"x": X3}), ort_outputs(model, {"x": X3})):
        np.testing.assert_array_equal(found, expected)
    graph = to_graph(module, "model", names)
    assert graph.outputs == ["third", "first", "second"]
    assert {node.outputs[0]: node.attrs["starts"] for node in graph.nodes} == {
        "first": (0,),
        "second": (1,),
        "third": (4,),
    }


def test_integer_shape_arithmetic_is_folded() -> None:
    grow = Builder()
    shape = grow.node("Shape", ["x"])
    batch = grow.node("Gather", [shape, np.array(0, I64)], axis=0)
    target = grow.node("Concat", [grow.node("Unsqueeze", [batch, array(0)]), array(-1)], axis=0)
    out = grow.node("Reshape", ["x", target], "reshape")
    model = grow.model({"x": X3}, [out])
    module, _, names = import_onnx(model)
    assert names == {("reshape", 0): out}
    assert [call.op.name for call in calls(module["main"])] == ["reshape"]
    assert built_outputs(module, {"x": X3})[0].shape == (2, 30)


def test_constant_nodes_of_every_kind() -> None:
    grow = Builder()
    tensor = onnx.numpy_helper.from_array(normal(6), "t")
    first = grow.node("Constant", [], "c1", value=tensor)
    second = grow.node("Constant", [], "c2", value_float=2.0)
    out = grow.node("Mul", [grow.node("Add", ["x", first]), second])
    model = grow.model({"x": X3}, [out])
    np.testing.assert_allclose(built_outputs(import_onnx(model)[0], {"x": X3})[0], (X3 + normal(6)) * 2, rtol=1e-6)


def test_int8_weights_are_not_folded_to_float() -> None:
    grow = Builder()
    weight = grow.node("DequantizeLinear", [codes(6, 3), *q(0.1)], "weight")
    model = grow.model({"x": X3}, [grow.node("MatMul", ["x", weight])])
    assert "qnn.dequantize" in [call.op.name for call in calls(import_onnx(model)[0]["main"])]


def test_initializers_carry_their_names() -> None:
    grow = Builder()
    model = grow.model({"x": X3}, [grow.node("Add", ["x", grow.constant(normal(6), "the bias")])])
    (call,) = calls(import_onnx(model)[0]["main"])
    assert span_name(call.args[1].span) == "the bias"


def test_time_is_linear() -> None:
    grow = Builder()
    x = "x"
    for index in range(2000):
        x = grow.node(("Relu", "Add")[index % 2], [x] if index % 2 == 0 else [x, np.float32(0.5)])
    model = grow.model({"x": X3}, [x])
    start = time.perf_counter()
    module, _, names = import_onnx(model)
    assert time.perf_counter() - start < 2
    assert len(names) == len(calls(module["main"])) == 2000


def test_nodes_without_or_with_equal_names_stay_apart() -> None:
    grow = Builder()
    model = grow.model({"x": X3}, [grow.node("Relu", [grow.node("Neg", ["x"], "a")], "b")])
    model.graph.node[0].name = model.graph.node[1].name = "same"
    assert list(import_onnx(model)[2]) == [("same", 0), ("same_1", 0)]
    model.graph.node[0].name = ""
    assert list(import_onnx(model)[2]) == [("Neg_a_out", 0), ("same", 0)]


def test_nodes_in_any_order_are_imported() -> None:
    """ONNX Runtime's QDQ quantiser appends its nodes behind their readers."""
    model, _ = qlinear_network()
    expected = import_onnx(model)
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    found = import_onnx(model)
    assert list(found[2]) == list(expected[2])
    assert tvm.ir.structural_equal(found[0], expected[0])


def test_an_input_nobody_makes_is_refused() -> None:
    grow = Builder()
    model = grow.model({"x": X3}, [grow.node("Relu", ["x"], "relu")])
    model.graph.node[0].input[0] = "ghost"
    with pytest.raises(UserError, match=r"ONNX node 'relu' \(Relu\): input 'ghost' must be made by a node"):
        import_onnx(model)


def test_an_unknown_op_is_refused_by_name() -> None:
    grow = Builder()
    model = grow.model({"x": X3}, [grow.node("Sinh", ["x"], "/block/sinh")])
    with pytest.raises(UnsupportedNode, match=r"ONNX node '/block/sinh' \(Sinh\): .* Leave it out with epu.cut_onnx"):
        import_onnx(model)


def test_a_dynamic_input_is_refused_and_shapes_fix_it() -> None:
    grow = Builder()
    model = grow.model({"x": X3}, [grow.node("Relu", ["x"])])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    with pytest.raises(UserError, match=r"ONNX input 'x': .* found \['batch', 5, 6\]\. .*shapes="):
        import_onnx(model)
    module, _, _ = import_onnx(model, {"x": (4, 5, 6)})
    assert built_outputs(module, {"x": normal(4, 5, 6)})[0].shape == (4, 5, 6)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("Pow", ["y"], {}, "input 1 must be a constant, found a computed tensor"),
        ("MatMul", [normal(5, 2)], {}, "inner sizes of the product must be equal"),
        ("Reshape", [array(7, 9)], {}, r"must hold 60 elements, found 63"),
    ],
)
def test_refusals_name_node_limit_and_value(
    op: str, inputs: list[Any], attributes: dict[str, Any], message: str
) -> None:
    grow = Builder()
    node = onnx.helper.make_node(
        op, ["x", *[i if isinstance(i, str) else grow.constant(i) for i in inputs]], ["o"], "n"
    )
    node.attribute.extend(onnx.helper.make_attribute(key, value) for key, value in attributes.items())
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, X3.shape) for name in ("x", "y")]
    output = onnx.helper.make_tensor_value_info("o", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([node], "g", infos, [output], grow.initializers)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    with pytest.raises(UnsupportedNode, match=rf"ONNX node 'n' \({op}\): .*{message}"):
        import_onnx(model)


def test_quantised_softmax_of_old_opsets_over_inner_axes_is_refused_with_the_remedy() -> None:
    grow = Builder()
    x = grow.node("QuantizeLinear", ["x", *q(0.1)])
    x = grow.node("QLinearSoftmax", [x, *q(0.1), *q(1 / 256, -128)], "sm", "com.microsoft", opset=12, axis=1)
    with pytest.raises(UnsupportedNode, match="'sm'.*last axis, found 1. Transpose around it"):
        import_onnx(grow.model({"x": X3}, [x]))
