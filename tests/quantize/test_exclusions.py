"""What stays float: by op type, by structure, by range, by request."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import pytest
from onnx import helper
from small_models import conv_net, layer_norm_net, model_of, node, normal, value

from epu.errors import UserError
from epu.models import detr_encoder
from epu.quantization.exclusions import layer_norm_groups, nodes_to_exclude
from epu.quantization.masks import mask_nodes


def groups(model: onnx.ModelProto) -> list[str]:
    return ["".join(each.name for each in group) for group in layer_norm_groups(model.graph)]


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("square", ["Pow", "Mul"])
def test_layer_norm_is_found_whatever_its_names(opset: int, square: str) -> None:
    assert groups(layer_norm_net(opset, square=square)) == ["abcdefghi"]


def test_layer_norm_without_gamma_and_beta() -> None:
    assert groups(layer_norm_net(affine=False)) == ["abcdefg"]


def test_layer_norm_that_subtracts_twice() -> None:
    assert groups(layer_norm_net(twice=True)) == ["abb2cdefghi"]


def test_every_layer_norm_of_a_transformer() -> None:
    found = layer_norm_groups(detr_encoder(layers=2, d_model=16, heads=2, ffn=32, sequence=12).graph)
    names = ["ReduceMean", "Sub", "Pow", "ReduceMean_1", "Add", "Sqrt", "Div", "Mul", "Add_1"]
    norms = ["self_attn_layer_norm", "final_layer_norm"]
    expected = [[f"/encoder/layers.{i}/{norm}/{name}" for name in names] for i in range(2) for norm in norms]
    assert [[each.name for each in group] for group in found] == expected


@pytest.mark.parametrize(
    ("index", "change"),
    [
        (1, ["x"]),  # mean of another tensor
        (2, ["x", "a"]),  # another tensor centred
        (4, ["m"]),  # variance of what is no square
        (3, ["m", "two"]),  # square of what is not centred
        (7, ["m", "f"]),  # what is divided is not centred
    ],
)
def test_what_only_resembles_layer_norm(index: int, change: list[str]) -> None:
    model = layer_norm_net()
    model.graph.node[index].input[:] = change
    assert groups(model) == []


def test_softmax_sigmoid_and_custom_ops() -> None:
    nodes = [node("Softmax", ["x"], "a"), node("Sigmoid", ["a"], "b"), node("Relu", ["b"], "c")]
    nodes += [helper.make_node(f"QuadricCustomOp{n}", ["c"], [f"q{n}"], name=f"q{n}") for n in ("", "Attention")]
    model = model_of(nodes, [value("x", [4])], [value("q", [4])])
    assert nodes_to_exclude(model) == ["a", "b", "q", "qAttention"]


def test_requested_names_and_types() -> None:
    model = conv_net()
    assert nodes_to_exclude(model, ["flat", "Gemm"]) == ["flat", "logits", "y"]


def test_request_may_name_a_node_that_was_folded() -> None:
    folded = model_of([node("Relu", ["x"], "y")], [value("x", [1])], [value("y", [1])])
    assert nodes_to_exclude(folded, ["bn", "BatchNormalization"], original=conv_net()) == []


def test_unknown_request_names_the_nearest() -> None:
    with pytest.raises(UserError, match="exclude: 'logitz' is neither .*Did you mean 'logits'"):
        nodes_to_exclude(conv_net(), ["logitz"])


def test_request_must_be_a_list() -> None:
    with pytest.raises(UserError, match=r"exclude must be a list .*found 'Gemm'. Write \['Gemm'\]"):
        nodes_to_exclude(conv_net(), "Gemm")


def masked_attention() -> onnx.ModelProto:
    nodes = [
        node("Sub", ["one", "m"], "inverse"),
        node("Mul", ["inverse", "large"], "mask"),
        node("MatMul", ["x", "w"], "scores"),
        node("Add", ["scores", "mask"], "masked"),
        node("Softmax", ["masked"], "y"),
    ]
    weights = {"one": np.float32(1), "large": np.float32(-1e4), "w": normal(0, 4, 4)}
    return model_of(nodes, [value("x", [4, 4]), value("m", [1, 4])], [value("y", [4, 4])], weights)


def test_additive_mask_stays_float(caplog: pytest.LogCaptureFixture) -> None:
    ranges = {"mask": (-1e4, 0.0), "scores": (-3.0, 3.0), "masked": (-1e4, 3.0)}
    with caplog.at_level(logging.INFO, "epu"):
        assert mask_nodes(masked_attention(), ranges, ["y"]) == ["masked"]
    assert "Node 'masked' stays float: tensor 'mask' holds a mask" in caplog.text


def test_enormous_mask_keeps_its_maker_float() -> None:
    ranges = {"mask": (-3.4e38, 0.0), "scores": (-3.0, 3.0), "masked": (-3.4e38, 3.0)}
    assert mask_nodes(masked_attention(), ranges, ["y"]) == ["mask", "masked"]


def test_usual_ranges_are_no_masks() -> None:
    assert mask_nodes(masked_attention(), {"mask": (-900.0, 0.0), "scores": (-30.0, 5000.0)}) == []
