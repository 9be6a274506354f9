"""Quantising a float model with custom operators: the nodes stay, their bodies stay float and are calibrated."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from custom_cases import call_node
from onnx import helper, numpy_helper

from epu.custom_match import replace_subgraphs
from epu.errors import UserError
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.quantize import QuantizeResult, quadric_quantize

SIZE = 24


def float_model(body: list[onnx.NodeProto]) -> onnx.ModelProto:
    """Product, ``square`` with the body given (a, b to c), product."""
    random = np.random.default_rng(0)
    weights = {
        "first": random.normal(size=(SIZE, SIZE)).astype(np.float32) / 8,
        "second": random.normal(size=(SIZE, SIZE)).astype(np.float32) / 8,
        "bias": np.linspace(-1, 1, SIZE).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"], name="one"),
        call_node("square", ["a", "bias"], "b"),
        helper.make_node("MatMul", ["b", "second"], ["y"], name="two"),
    ]
    graph = helper.make_graph(
        nodes,
        "custom",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4, SIZE])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4, SIZE])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.quadric", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    model.functions.append(
        helper.make_function("com.quadric", "QuadricCustomOp", ["a", "b"], ["c"], body, opsets[:1], ["op_name"])
    )
    return model


SQUARE_BODY = [helper.make_node("Mul", ["a", "a"], ["aa"]), helper.make_node("Add", ["aa", "b"], ["c"])]


def quantised(model: onnx.ModelProto, folder: Path, **settings: str) -> tuple[QuantizeResult, onnx.ModelProto]:
    onnx.save(model, folder / "m.onnx")
    result = quadric_quantize(folder / "m.onnx", synthetic_input=True, num_images=4, output_folder=folder, **settings)  # type: ignore[arg-type]
    return result, onnx.load(result.qmodel_path)


@pytest.mark.parametrize("format", ["qoperator", "qdq"])
def test_the_node_stays_and_compiles(tmp_path: Path, format: str) -> None:
    result, model = quantised(float_model(SQUARE_BODY), tmp_path, format=format)
    (node,) = (each for each in model.graph.node if each.domain == "com.quadric")
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    assert (node.name, attributes["op_name"], attributes["tensors"]) == ("custom", b"square", [b"aa=custom:aa"])
    assert node.input[1] == "bias"
    ranges = json.loads(Path(result.tranges_path).read_text())
    assert ranges["custom:aa"][0] >= 0
    assert "QuadricCustomOp" in {each.op_type for each in onnx.load(result.float_path).graph.node}
    job = ChimeraJob(
        result.qmodel_path,
        HWConfig(product="QC-N"),
        result.tranges_path,
        custom_ops="custom_cases",
        run_directory=tmp_path / "run",
    )
    job.compile()
    assert job.validate_ort_iss().passed


def test_a_body_with_functions_and_constants_of_its_own(tmp_path: Path) -> None:
    half = helper.make_node("Constant", [], ["half"], value=numpy_helper.from_array(np.float32(0.5)))
    body = [half, helper.make_node("HardSwish", ["a"], ["gate"]), helper.make_node("Mul", ["gate", "half"], ["part"])]
    _, model = quantised(float_model([*body, helper.make_node("Add", ["part", "b"], ["c"])]), tmp_path)
    found = Counter(node.op_type for node in model.graph.node)
    assert found["QuadricCustomOp"] == 1
    assert not found.keys() & {"HardSwish", "HardSigmoid", "Mul", "QLinearMul", "QLinearAdd"}
    onnx.checker.check_model(model)


def test_a_replaced_subgraph_keeps_its_names(tmp_path: Path) -> None:
    model = float_model(SQUARE_BODY)
    model.graph.node[1].CopyFrom(helper.make_node("Mul", ["a", "a"], ["inner"], name="mul"))
    model.graph.node.insert(2, helper.make_node("Add", ["inner", "bias"], ["b"], name="add"))
    del model.functions[:]
    result, made = quantised(replace_subgraphs(model, "square", ["a"], "b"), tmp_path)
    (node,) = (each for each in made.graph.node if each.domain == "com.quadric")
    assert b"Mul=inner" in next(each.strings for each in node.attribute if each.name == "tensors")
    assert "inner" in json.loads(Path(result.tranges_path).read_text())


def test_a_body_that_is_optimised_away_is_refused(tmp_path: Path) -> None:
    body = [helper.make_node("Mul", ["a", "a"], ["c"]), helper.make_node("Mul", ["b", "b"], ["unused"])]
    with pytest.raises(
        UserError, match=r"ONNX node 'custom' .* keep the tensors at its edges .* 'bias'. Quantise the model first"
    ):
        quantised(float_model(body), tmp_path)
