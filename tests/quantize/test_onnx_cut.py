"""Cutting: the sub-model computes the same, and edges that do not cut are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from small_models import model_of, node, normal, value

from epu.errors import UserError
from epu.models import detr_encoder, detr_inputs
from epu.onnx_shapes import static_shape
from epu.onnx_util import cut_onnx
from epu.quantization.session import open_session

MODEL = detr_encoder(layers=3, d_model=16, heads=2, ffn=32, sequence=12)
FIRST = "/encoder/layers.0/final_layer_norm/Add_1_output_0"
SECOND = "/encoder/layers.1/final_layer_norm/Add_1_output_0"


def tensors(model: onnx.ModelProto, inputs: dict[str, Any], names: list[str]) -> list[Any]:
    return list(open_session(model, names).run(names, inputs))


def names_of(values: Any) -> list[str]:
    return [entry.name for entry in values]


def test_one_layer_computes_the_same() -> None:
    inputs = detr_inputs(1, d_model=16, sequence=12)
    first, second = tensors(MODEL, inputs, [FIRST, SECOND])
    layer = cut_onnx(MODEL, cut_before=[FIRST, "pos_embed"], cut_after=[SECOND])
    onnx.checker.check_model(layer, full_check=True)
    (result,) = tensors(layer, {FIRST: first, "pos_embed": inputs["pos_embed"]}, [SECOND])
    assert np.array_equal(result, second)


def test_what_is_kept() -> None:
    layer = cut_onnx(MODEL, cut_before=[FIRST, "pos_embed"], cut_after=[SECOND])
    assert names_of(layer.graph.input) == [FIRST, "pos_embed"]
    assert names_of(layer.graph.output) == [SECOND]
    assert static_shape(layer.graph.output[0]) == (1, 12, 16)
    whole = [each.name for each in MODEL.graph.node if each.name.startswith("/encoder/layers.1/")]
    assert names_of(layer.graph.node) == whole
    assert "encoder.layers.1.fc1.weight" in names_of(layer.graph.initializer)
    assert not any("layers.0" in name or "layers.2" in name for name in names_of(layer.graph.initializer))
    assert layer.opset_import == MODEL.opset_import


def test_first_and_last_layer_by_the_models_own_edges() -> None:
    head = cut_onnx(MODEL, cut_after=[FIRST])
    tail = cut_onnx(MODEL, cut_before=[SECOND, "pos_embed"])
    assert names_of(head.graph.input) == ["src", "pos_embed"]
    assert names_of(tail.graph.output) == ["encoder_memory"]
    assert len(head.graph.node) == len(tail.graph.node) == len(MODEL.graph.node) / 3


def test_node_names_are_edges_too() -> None:
    part = cut_onnx(MODEL, ["/encoder/layers.0/fc1/MatMul"], ["/encoder/layers.0/activation_fn/Relu"])
    assert [each.op_type for each in part.graph.node] == ["MatMul", "Add", "Relu"]
    assert names_of(part.graph.input) == ["/encoder/layers.0/self_attn_layer_norm/Add_1_output_0"]
    assert names_of(part.graph.output) == ["/encoder/layers.0/activation_fn/Relu_output_0"]


def test_unknown_edge_names_the_nearest() -> None:
    with pytest.raises(UserError, match="cut_after: the model has no tensor or node 'encoder_memry'.*'encoder_memory'"):
        cut_onnx(MODEL, ["src", "pos_embed"], ["encoder_memry"])


def test_missing_edge_is_named() -> None:
    with pytest.raises(UserError) as caught:
        cut_onnx(MODEL, [FIRST], [SECOND])
    assert str(caught.value) == (
        f"cut_before: '{SECOND}' also needs input 'pos_embed', which the edges ['{FIRST}'] do not cut off. "
        f"Add 'pos_embed' to cut_before, or an edge between it and '{SECOND}'."
    )


def test_edge_that_is_not_needed() -> None:
    with pytest.raises(UserError, match="do not depend on 'src' past the other edges. Remove it"):
        cut_onnx(MODEL, [FIRST, "pos_embed", "src"], [SECOND])


def test_weight_is_no_edge() -> None:
    with pytest.raises(UserError, match="'encoder.layers.0.fc1.weight' is a weight, not an edge"):
        cut_onnx(MODEL, ["encoder.layers.0.fc1.weight"], [FIRST])


def test_nothing_between_the_edges() -> None:
    with pytest.raises(UserError, match=f"no node lies before '{FIRST}'"):
        cut_onnx(MODEL, [FIRST, "pos_embed"], [FIRST])


@pytest.mark.parametrize("edges", ["src", []])
def test_edges_must_be_a_list(edges: Any) -> None:
    with pytest.raises(UserError, match="cut_before must be a list of tensor or node names"):
        cut_onnx(MODEL, edges, [FIRST])


def test_edge_whose_node_is_needed_for_another_output() -> None:
    split = helper.make_node("Split", ["x"], ["a", "b"], name="split", axis=0)
    model = model_of([split, node("Add", ["a", "b"], "y")], [value("x", [4])], [value("y", [2])])
    with pytest.raises(UserError, match=r"node 'split' computes 'a' but is needed past the edges.*\['b'\]"):
        cut_onnx(model, ["a", "x"], ["y"])


def test_edge_of_unknown_type() -> None:
    custom = helper.make_node("QuadricCustomOp", ["x"], ["c"], name="custom", domain="quadric")
    model = model_of([custom, node("Relu", ["c"], "y")], [value("x", [4])], [value("y", [4])])
    model.opset_import.append(helper.make_opsetid("quadric", 1))
    with pytest.raises(UserError, match="edge 'c': its type cannot be inferred"):
        cut_onnx(model, ["c"], ["y"])


def test_weights_read_by_a_subgraph_are_kept() -> None:
    def branch(op_type: str) -> onnx.GraphProto:
        return helper.make_graph([node(op_type, ["r", "w"], "z")], op_type, [], [value("z", [2])])

    choose = node("If", ["flag"], "y", then_branch=branch("Add"), else_branch=branch("Mul"))
    flag = value("flag", [], onnx.TensorProto.BOOL)
    model = model_of(
        [node("Relu", ["x"], "r"), choose], [value("x", [2]), flag], [value("y", [2])], {"w": normal(0, 2)}
    )
    part = cut_onnx(model, ["r", "flag"], ["y"])
    assert names_of(part.graph.initializer) == ["w"]
    with pytest.raises(UserError, match="'y' also needs input 'x'"):
        cut_onnx(model, ["flag"], ["y"])


def test_dynamic_model_can_be_cut() -> None:
    model = model_of([node("Relu", ["x"], "r"), node("Neg", ["r"], "y")], [value("x", ["N"])], [value("y", ["N"])])
    assert names_of(cut_onnx(model, ["r"], ["y"]).graph.node) == ["y"]
