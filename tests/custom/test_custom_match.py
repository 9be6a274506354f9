"""Replacing subgraphs: what counts as the same structure, what the model means afterwards, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from epu.custom_match import replace_subgraphs
from epu.errors import UserError
from epu.ort_reference import OrtReference

SHAPE = (2, 6)


def scaled_gate(source: str, scope: str, factor: str = "factor", axis: int = -1) -> list[onnx.NodeProto]:
    """Softmax(x * factor) reshaped there and back."""
    return [
        helper.make_node("Mul", [source, factor], [f"{scope}.product"], name=f"{scope}/Mul"),
        helper.make_node("Reshape", [f"{scope}.product", "shape"], [f"{scope}.flat"], name=f"{scope}/Reshape"),
        helper.make_node("Softmax", [f"{scope}.flat"], [f"{scope}.share"], name=f"{scope}/Softmax", axis=axis),
        helper.make_node("Add", [f"{scope}.share", f"{scope}.product"], [f"{scope}.out"], name=f"{scope}/Add"),
    ]


def model_of(nodes: list[onnx.NodeProto], outputs: list[str], **constants: Any) -> onnx.ModelProto:
    values = {"factor": np.float32(2), "other": np.float32(3), "shape": np.array(SHAPE), **constants}
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "gates",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items() if name in read],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def calls(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.domain == "com.quadric"]


def same_in_onnx_runtime(one: onnx.ModelProto, other: onnx.ModelProto) -> bool:
    feeds = {"x": np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)}
    first, second = OrtReference(one).run(feeds), OrtReference(other).run(feeds)
    return all(np.array_equal(first[name], second[name]) for name in second)


def test_every_place_of_the_structure_is_replaced() -> None:
    nodes = [*scaled_gate("x", "a"), *scaled_gate("a.out", "b", "other"), *scaled_gate("b.out", "c")]
    model = model_of(nodes, ["c.out"])
    made = replace_subgraphs(model, "gate", ["a.out"], "b.out", heads=4)
    onnx.checker.check_model(made)
    found = [(node.name, list(node.input), list(node.output)) for node in calls(made)]
    assert found == [
        ("CustomOp/gate0", ["x", "factor"], ["a.out"]),
        ("CustomOp/gate1", ["a.out", "other"], ["b.out"]),
        ("CustomOp/gate2", ["b.out", "factor"], ["c.out"]),
    ]
    attributes = {each.name: helper.get_attribute_value(each) for each in calls(made)[2].attribute}
    assert attributes["tensors"] == [b"Mul=c.product", b"Reshape=c.flat", b"Softmax=c.share"]
    assert (attributes["op_name"], attributes["heads"]) == (b"gate", 4)
    assert [each.name for each in made.graph.initializer] == ["factor", "other"]
    assert same_in_onnx_runtime(model, made)


@pytest.mark.parametrize(
    "other",
    [
        scaled_gate("a.out", "b", axis=0),
        scaled_gate("a.out", "b", factor="per_column"),
        [*scaled_gate("a.out", "b")[:3], helper.make_node("Sub", ["b.share", "b.product"], ["b.out"], name="b/Sub")],
        [*scaled_gate("a.out", "b")[:3], helper.make_node("Add", ["b.share", "a.out"], ["b.out"], name="b/Add")],
        [*scaled_gate("a.out", "b")[:3], helper.make_node("Add", ["b.share", "b.share"], ["b.out"], name="b/Add")],
    ],
    ids=["attribute", "rank", "operator", "edge", "twice"],
)
def test_another_structure_stays(other: list[onnx.NodeProto]) -> None:
    model = model_of([*scaled_gate("x", "a"), *other], ["b.out"], per_column=np.ones(6, np.float32))
    made = replace_subgraphs(model, "gate", ["x"], "a.out")
    assert len(calls(made)) == 1
    assert same_in_onnx_runtime(model, made)


def test_integer_constants_are_structure() -> None:
    nodes = [*scaled_gate("x", "a"), *scaled_gate("a.out", "b")]
    nodes[5].input[1] = "same"
    assert len(calls(replace_subgraphs(model_of(nodes, ["b.out"], same=np.array(SHAPE)), "gate", ["x"], "a.out"))) == 2
    nodes[5].input[1] = "minus"
    assert (
        len(calls(replace_subgraphs(model_of(nodes, ["b.out"], minus=np.array([2, -1])), "gate", ["x"], "a.out"))) == 1
    )


def test_what_is_read_elsewhere_stays() -> None:
    nodes = [*scaled_gate("x", "a"), *scaled_gate("a.out", "b")]
    model = model_of(nodes, ["b.out", "b.share"])
    assert [node.name for node in calls(replace_subgraphs(model, "gate", ["x"], "a.out"))] == ["CustomOp/gate0"]
    with pytest.raises(UserError, match=r"must be read within, found 'b.share' read elsewhere"):
        replace_subgraphs(model, "gate", ["a.out"], "b.out")


def test_a_second_replacement_has_a_body_of_its_own() -> None:
    nodes = [*scaled_gate("x", "a"), *scaled_gate("a.out", "b", axis=0)]
    model = model_of(nodes, ["b.out"])
    made = replace_subgraphs(replace_subgraphs(model, "gate", ["x"], "a.out"), "gate", ["a.out"], "b.out")
    onnx.checker.check_model(made)
    assert [(node.name, node.op_type) for node in calls(made)] == [
        ("CustomOp/gate0", "QuadricCustomOp_gate"),
        ("CustomOp/gate1", "QuadricCustomOp_gate_1"),
    ]
    assert same_in_onnx_runtime(model, made)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (["y"], "a.out", "before: the model has no computed tensor 'y'"),
        (["x"], "a.outs", "after: the model has no computed tensor 'a.outs'. Did you mean 'a.out'"),
        (["a.share"], "a.out", "before: 'a.out' also needs 'x', which .* do not cut off. Add it"),
        (["x", "a.flat"], "a.product", "before: 'a.flat' must lead to 'a.product', found no node"),
    ],
)
def test_edges_that_do_not_cut(before: list[str], after: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace_subgraphs(model_of(scaled_gate("x", "a"), ["a.out"]), "gate", before, after)


def test_the_log_counts_what_it_matched(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [*scaled_gate("x", "a"), helper.make_node("Relu", ["a.out"], ["y"], name="relu")]
    with caplog.at_level("INFO", "epu.custom_ops"):
        replace_subgraphs(model_of(nodes, ["y"]), "gate", ["x"], "a.out")
    assert "gate: 1 subgraphs of 4 nodes each became QuadricCustomOp" in caplog.text
    assert "native operators: {'Relu': 1}" in caplog.text
