"""Accuracy targets: the harm of each node, the fewest left in fixed point, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from epu.cli.group import epu
from epu.errors import UserError
from epu.quantization.accuracy import METRICS, Target, reach
from epu.quantize import quadric_quantize

SIZE = 16
RANDOM = np.random.default_rng(5)
SAMPLES = [{"x": RANDOM.standard_normal((1, SIZE)).astype(np.float32)} for _ in range(6)]


def three_products(huge: float = 3000) -> onnx.ModelProto:
    """Three MatMuls; the second one's weights have one huge row, which leaves the others few int8 steps."""
    weights = [RANDOM.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in range(3)]
    weights[1][0, :] *= huge
    weights[0][:, 0] = 0  # what the huge row reads is 0
    nodes = [
        helper.make_node(
            "MatMul", ["x" if index == 0 else f"t{index}", f"w{index}"], [f"t{index + 1}"], name=f"m{index}"
        )
        for index in range(3)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, SIZE)) for name in ("x", "t3")]
    constants = [numpy_helper.from_array(value, f"w{index}") for index, value in enumerate(weights)]
    graph = helper.make_graph(nodes, "three", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_harmful_node_alone_is_left_float(tmp_path: Path) -> None:
    result = quadric_quantize(
        three_products(), calibration_data=SAMPLES, output_folder=tmp_path, accuracy=Target(0.02, "cosine")
    )
    found = result.accuracy
    assert found is not None
    assert (found.left_float, found.nodes[0].node) == (["m1"], "m1")
    assert found.int8_score < found.goal <= found.score <= found.float_score == pytest.approx(1.0)
    ops = [node.op_type for node in onnx.load(result.qmodel_path).graph.node]
    assert (ops.count("QLinearMatMul"), ops.count("MatMul")) == (2, 1)


def test_target_that_int8_reaches_leaves_nothing(tmp_path: Path) -> None:
    result = quadric_quantize(
        three_products(1), calibration_data=SAMPLES, output_folder=tmp_path, accuracy=Target(0.05, "cosine")
    )
    assert result.accuracy is not None
    assert (result.accuracy.left_float, result.accuracy.nodes) == ([], ())


def fake(scores: dict[frozenset[str], float]) -> Any:
    """A quantiser of models whose one output is a vector at the cosine that ``scores`` gives the int8 nodes' choice."""
    names = ("a", "b", "c")

    def model(cosine: float, kept: tuple[str, ...]) -> onnx.ModelProto:
        vector = numpy_helper.from_array(np.array([[cosine, np.sqrt(1 - cosine**2)]], np.float32), "v")
        nodes = [helper.make_node("Relu", ["x"], [f"y_{name}"], name=name) for name in kept]
        nodes.append(helper.make_node("Mul", ["x", "v"], ["out"], name="out"))
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 2)) for name in ("x", "out")]
        graph = helper.make_graph(nodes, "fake", ends[:1], ends[1:], [vector])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)

    return model(1.0, names), lambda left: model(scores.get(frozenset(left), 1.0), tuple(left))


def test_unneeded_node_of_the_head_becomes_int8_again() -> None:
    # alone, a harms most; but what the target needs is b and c
    scores = {
        frozenset(): 0.1,
        frozenset("bc"): 0.95,
        frozenset("ac"): 0.96,
        frozenset("ab"): 0.97,
        frozenset("a"): 0.2,
        frozenset("b"): 0.3,
        frozenset("c"): 0.3,
    }
    model, quantise = fake({**scores, frozenset("bc"): 0.995})
    ones: list[dict[str, NDArray[Any]]] = [{"x": np.ones((1, 2), np.float32)}]
    assert sorted(reach(Target(0.01), model, ones, quantise).left_float) == ["b", "c"]


def test_out_of_reach_is_refused_with_the_best_score() -> None:
    model, quantise = fake({frozenset(): 0.1, frozenset("abc"): 0.5})
    with pytest.raises(UserError, match=r"no choice of nodes reaches 0\.99.*score is 0\.5"):
        reach(Target(0.01), model, [{"x": np.ones((1, 2), np.float32)}], quantise)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"drop": 0.01, "metric": "f1"}, "metric must be one of cosine, rmse, top1, found 'f1'"),
        ({"drop": 1.0}, "accuracy_drop must be from 0 up to 1, found 1.0"),
        ({"drop": 0.1, "labels": [1]}, "labels must come with the metric top1"),
    ],
)
def test_bad_targets_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Target(**arguments)


def test_labels_must_be_one_per_sample() -> None:
    model, quantise = fake({})
    with pytest.raises(UserError, match="one per sample, found 2 for 1 samples"):
        reach(Target(0.1, "top1", [0, 1]), model, [{"x": np.ones((1, 2), np.float32)}], quantise)


def test_metrics_at_their_ends() -> None:
    one, other = [np.array([[1.0, 0.0]])], [np.array([[0.0, 1.0]])]
    zero = [np.zeros((1, 2))]
    assert [METRICS[name](one, one, None) for name in METRICS] == [1.0, 1.0, 1.0]
    assert [METRICS[name](one, other, None) for name in METRICS] == pytest.approx([0.0, 1 - np.sqrt(2), 0.0])
    assert [METRICS[name](zero, zero, None) for name in ("cosine", "rmse")] == [1.0, 1.0]
    assert (METRICS["top1"](one, other, 0), METRICS["top1"](one, other, 1)) == (1.0, 0.0)


def test_command_tells_the_harm_of_each_node(tmp_path: Path) -> None:
    onnx.save(three_products(), tmp_path / "three.onnx")
    np.savez(tmp_path / "calib.npz", x=np.stack([sample["x"] for sample in SAMPLES]))
    arguments = ["--calib", str(tmp_path / "calib.npz"), "--accuracy-drop", "0.02", "-o", str(tmp_path)]
    result = CliRunner().invoke(epu, ["quantize", str(tmp_path / "three.onnx"), *arguments])
    assert result.exit_code == 0, result.output
    assert "m1" in result.output
    assert "1 nodes left in fixed point" in result.output
