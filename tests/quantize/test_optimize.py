"""Preparation: the same function, own opset, folded, and every node that remains keeps its name."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from small_models import conv_net, layer_norm_net, model_of, node, normal, shared_model, value

from epu.errors import UserError
from epu.models import detr_encoder
from epu.onnx_shapes import opset_of
from epu.onnx_util import load_model
from epu.quantization.optimize import name_nodes, optimize
from epu.quantization.samples import synthetic_samples
from epu.quantization.session import open_session

OPSETS = range(11, 24)


def outputs(model: onnx.ModelProto, sample: dict[str, Any]) -> list[Any]:
    return list(open_session(model).run(None, sample))


def check_same(model: onnx.ModelProto, optimized: onnx.ModelProto) -> None:
    (sample,) = synthetic_samples(model, 1, seed=0)
    for expected, found in zip(outputs(model, sample), outputs(optimized, sample), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def names(model: onnx.ModelProto) -> list[str]:
    return [each.name for each in model.graph.node]


@pytest.mark.parametrize("opset", OPSETS)
def test_conv_net_at_every_opset(opset: int) -> None:
    model = load_model(conv_net(opset))
    optimized = optimize(model)
    assert opset_of(optimized) == opset
    assert names(optimized) == ["Conv_0", "Relu_0", "pool", "flat", "logits", "y"]
    check_same(model, optimized)


@pytest.mark.parametrize("opset", OPSETS)
def test_layer_norm_stays_decomposed_at_every_opset(opset: int) -> None:
    model = load_model(layer_norm_net(opset))
    optimized = optimize(model)
    assert names(optimized) == names(model)
    check_same(model, optimized)


def test_transformer_keeps_every_node() -> None:
    model = load_model(detr_encoder(layers=1, d_model=16, heads=2, ffn=32, sequence=12))
    optimized = optimize(model)
    assert names(optimized) == names(model)
    assert {t.name for t in optimized.graph.initializer} == {t.name for t in model.graph.initializer}
    assert [entry.domain for entry in optimized.opset_import] == [""]


def test_every_tensor_has_its_shape() -> None:
    optimized = optimize(load_model(conv_net()))
    known = {v.name for v in (*optimized.graph.value_info, *optimized.graph.output)}
    assert {name for each in optimized.graph.node for name in each.output} == known


def test_opset_below_11_is_raised_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    model = load_model(conv_net(9))
    with caplog.at_level(logging.WARNING, "epu"):
        optimized = optimize(model)
    assert opset_of(optimized) == 11
    assert "Raised the opset from 9 to 11" in caplog.text
    check_same(model, optimized)


def test_per_channel_raises_the_opset_to_13(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "epu"):
        assert opset_of(optimize(load_model(conv_net(12)), per_channel=True)) == 13
    assert "Raised the opset from 12 to 13" in caplog.text


def test_opset_that_onnx_runtime_does_not_know() -> None:
    model = conv_net()
    model.opset_import[0].version = 999
    with pytest.raises(UserError, match=r"ONNX Runtime .* refuses the model: .*999"):
        optimize(model)


def test_newer_ir_version_is_lowered() -> None:
    model = conv_net()
    model.ir_version = 13
    assert names(optimize(load_model(model)))[0] == "Conv_0"


def test_custom_op_is_refused_by_name() -> None:
    custom = helper.make_node("QuadricCustomOp", ["x"], ["y"], name="custom", domain="quadric")
    model = model_of([custom], [value("x", [4])], [value("y", [4])])
    model.opset_import.append(helper.make_opsetid("quadric", 1))
    with pytest.raises(UserError, match="ONNX Runtime .* refuses the model: .*QuadricCustomOp"):
        optimize(model)


def test_names_are_unique_and_the_first_use_stays(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [node("Relu", ["x"], "a", "twice"), node("Neg", ["a"], "b", "twice"), node("Relu", ["b"], "y", "")]
    nodes.append(node("Abs", ["y"], "z", "Relu_0"))
    model = model_of(nodes, [value("x", [1])], [value("z", [1])])
    with caplog.at_level(logging.WARNING, "epu"):
        assert names(name_nodes(model)) == ["twice", "twice_0", "Relu_1", "Relu_0"]
    assert "Node name 'twice' is used twice: the later one becomes 'twice_0'" in caplog.text


def test_inlined_function_is_named_after_its_caller() -> None:
    model = model_of(
        [node("HardSwish", ["x"], "h", "act"), node("Neg", ["h"], "y")], [value("x", [4])], [value("y", [4])], opset=14
    )
    optimized = optimize(load_model(model))
    if names(optimized) == ["act", "y"]:
        pytest.skip("this ONNX Runtime has a kernel for HardSwish")
    assert names(optimized) == ["act/HardSigmoid", "act", "y"]
    assert optimized.graph.node[0].output[0] == "act/HardSigmoid_output_0"
    check_same(model, optimized)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("op_type", "opset"), [("ConvTranspose", 13), ("Conv", 22)])
def test_what_follows_a_convolution_is_folded(op_type: str, opset: int, groups: int, with_bias: bool) -> None:
    weights = {
        "w": normal(0, 4, 6 // groups, 2, 2) if op_type == "ConvTranspose" else normal(0, 6, 4 // groups, 2, 2),
        "b": normal(1, 6),
        "offset": normal(2, 1, 6, 1, 1),
        "gamma": normal(3, 6),
        "beta": normal(4, 6),
        "mean": normal(5, 6),
        "var": np.abs(normal(6, 6)) + 1,
    }
    nodes = [
        node(op_type, ["x", "w", *(["b"] if with_bias else [])], "up", group=groups),
        node("Add", ["offset", "up"], "added"),
        node("BatchNormalization", ["added", "gamma", "beta", "mean", "var"], "y", epsilon=0.1),
    ]
    if not with_bias:
        del weights["b"]
    model = load_model(model_of(nodes, [value("x", [1, 4, 3, 3])], [value("y", [1, 6, "H", "W"])], weights, opset))
    optimized = optimize(model)
    assert names(optimized) == ["up"]
    assert {t.name for t in optimized.graph.initializer} == {"up.folded_weight", "up.folded_bias"}
    check_same(model, optimized)


def test_conv_transpose_with_two_readers_is_left() -> None:
    weights = {"w": normal(0, 4, 6, 2, 2), "offset": normal(2, 1, 6, 1, 1)}
    nodes = [
        node("ConvTranspose", ["x", "w"], "up"),
        node("Add", ["up", "offset"], "added"),
        node("Mul", ["up", "added"], "y"),
    ]
    model = load_model(model_of(nodes, [value("x", [1, 4, 3, 3])], [value("y", [1, 6, 4, 4])], weights))
    assert names(optimize(model)) == ["up", "added", "y"]


def test_real_model_keeps_names() -> None:
    path, _ = shared_model("ppocr_cls")
    model = load_model(path, shapes={"x": (1, 3, 48, 192)})
    optimized = optimize(model)
    assert set(names(optimized)) <= set(names(model))
    assert "BatchNormalization" not in {each.op_type for each in optimized.graph.node}
    check_same(model, optimized)


def test_old_files_need_not_repeat_weights_as_inputs() -> None:
    model = conv_net(8)
    model.ir_version = 3
    assert opset_of(optimize(load_model(model))) == 11


@pytest.mark.parametrize("shape", [(), (1,), (1, 4), (3, 1), (3, 4)], ids=str)
@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_a_gemm_has_one_bias_per_column(shape: tuple[int, ...], beta: float) -> None:
    nodes = [node("Gemm", ["x", "w", "c"], "y", name="product", beta=beta)]
    weights = {"w": normal(0, 5, 4), "c": normal(1, *shape)}
    model = load_model(model_of(nodes, [value("x", [3, 5])], [value("y", [3, 4])], weights))
    optimized = optimize(model)
    gemm, *add = optimized.graph.node
    assert gemm.name == "product"
    assert [each.name for each in add] == (["product/Add"] if shape[:1] == (3,) else [])
    shapes = {each.name: tuple(each.dims) for each in optimized.graph.initializer}
    assert [shapes[name] for name in gemm.input[2:]] == ([] if add else [(4,)])
    check_same(model, optimized)
