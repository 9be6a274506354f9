"""Small graphs with what models seldom have: outputs that nobody reads, scalars, vectors, values beyond the calibrated ranges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from epu.errors import UserError
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.quantize import compute_tensor_ranges, quadric_quantize
from epu.raw_tensors import encode
from epu.reference import run_reference
from epu.validation_result import ValidationResult

pytest.importorskip("tvm", reason="the Relay door needs TVM")

Array = NDArray[Any]


class Net:
    """Nodes in the order in which they are added; arrays become initializers."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(3)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op: str, *inputs: str | Array, parts: int = 1, **attributes: Any) -> Any:
        names = [each if isinstance(each, str) else self._constant(each) for each in inputs]
        made = [f"{op}_{len(self.nodes)}_{part}" for part in range(parts)]
        self.nodes.append(helper.make_node(op, names, made, made[0][:-2], **attributes))
        return made if parts > 1 else made[0]

    def reals(self, *shape: int) -> Array:
        return np.asarray(self.random.normal(size=shape), np.float32)

    def model(self, output: str, shape: tuple[int, ...]) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "odd", [x], [y], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)

    def _constant(self, array: Array) -> str:
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name


def validated(
    net: Net, output: str, shape: tuple[int, ...], folder: Path, form: str, size: float = 1.0
) -> tuple[ChimeraJob, ValidationResult]:
    """The job, and its validation on an input of ``size`` times the calibrated one; references must equal golden."""
    path, ranges = folder / "odd.onnx", folder / "odd.tranges"
    onnx.save(net.model(output, shape), path)
    x = net.reals(*shape)
    if form == "float":
        compute_tensor_ranges(path, ranges, [{"x": x}])
    else:
        files = quadric_quantize(str(path), calibration_data=[{"x": x}], output_folder=folder, format=form)
        path, ranges = Path(files.qmodel_path), Path(files.tranges_path)
    job = ChimeraJob(path, HWConfig("QC-N"), ranges, run_directory=folder / "run")
    job.compile()
    assert job.host_nodes == []
    feeds = {"x": x * np.float32(size)}
    raw = encode(job.program.inputs, feeds)
    references = run_reference(job.graph, raw)
    for name, found in job.compiled.golden(raw).items():
        if name in references:
            np.testing.assert_array_equal(found, references[name], err_msg=name)
    return job, job.validate_ort_iss(feeds)


def half_a_split(net: Net) -> str:
    first, _ = net.node("Split", "x", np.array([1, 3], np.int64), parts=2, axis=1)
    return str(net.node("Relu", net.node("MatMul", first, net.reals(4, 5))))


def dropped_input(net: Net) -> str:
    return str(net.node("Exp", net.node("Concat", net.node("Dropout", "x"), net.reals(2, 4, 4), axis=1)))


def global_mean_of_rows(net: Net) -> str:
    return str(net.node("GlobalAveragePool", net.node("Conv", "x", net.reals(3, 4, 1))))


def global_maximum_of_rows(net: Net) -> str:
    pooled = net.node("GlobalMaxPool", net.node("Mul", "x", np.float32(0.3)))
    return str(net.node("MatMul", pooled, net.reals(1, 6)))


def product_of_vectors(net: Net) -> str:
    flat = net.node("Relu", net.node("Reshape", "x", np.array([-1], np.int64)))
    scalar = net.node("MatMul", flat, net.reals(32))
    return str(net.node("Mul", scalar, scalar))


def zero_width_slice(net: Net) -> str:
    start, end, axis = (np.array([value], np.int64) for value in (0, 0, 2))
    return str(net.node("Relu", net.node("Concat", net.node("Slice", "x", start, end, axis), "x", axis=2)))


def removed_identity_of_a_part(net: Net) -> str:
    """What is removed has the format of what it is a view of, not that of its own range."""
    product = net.node("MatMul", "x", net.reals(4, 4) * np.float32([8, 1, 1, 1]))
    start, end, axis = (np.array([value], np.int64) for value in (1, 4, 2))
    part = net.node("Identity", net.node("Slice", product, start, end, axis))
    return str(net.node("ReduceMin", part, axes=[2]))


def cube(net: Net) -> str:
    return str(net.node("Pow", net.node("Mul", "x", np.float32(0.7)), np.float32(3)))


CASES: tuple[Callable[[Net], str], ...] = (
    *(half_a_split, dropped_input, global_mean_of_rows),
    *(global_maximum_of_rows, product_of_vectors, zero_width_slice, removed_identity_of_a_part, cube),
)


@pytest.mark.parametrize("form", ["qoperator", "qdq", "float"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_an_odd_graph_is_seen_and_right(case: Callable[[Net], str], form: str, tmp_path: Path) -> None:
    net = Net()
    _, result = validated(net, case(net), (2, 4, 4), tmp_path, form)
    assert result.passed, result.failures
    assert result.summary["skipped"] == 0
    assert result.summary["isolated_unexplained"] == 0


def test_an_output_that_nobody_needs_has_no_row(tmp_path: Path) -> None:
    net = Net()
    _, result = validated(net, half_a_split(net), (2, 4, 4), tmp_path, "float")
    names = {row["Name"] for row in result if row["Type"] == "Node"}
    assert {"Split_0:0"} <= names
    assert "Split_0:1" not in names


def exponential(net: Net) -> str:
    return str(net.node("Exp", "x"))


def reciprocal(net: Net) -> str:
    """ONNX Runtime says infinity where the calibrated divisor is 0, the ISS the largest number."""
    return str(net.node("Reciprocal", net.node("Relu", net.node("Sub", np.float32(6), net.node("Abs", "x")))))


@pytest.mark.parametrize("op", ["Tanh", "Sigmoid", "Exp", "Elu", "HardSigmoid", "HardSwish"])
def test_a_curve_of_coarse_inputs_is_refused_with_the_limit(op: str, tmp_path: Path) -> None:
    net = Net()
    path, ranges = tmp_path / "odd.onnx", tmp_path / "odd.tranges"
    onnx.save(net.model(net.node(op, net.node("Relu", "x")), (1, 8)), path)
    ranges.write_text(f'{{"x": [-1e13, 1e13], "Relu_0_0": [0, 1e13], "{op}_1_0": [0, 1]}}')
    job = ChimeraJob(path, HWConfig("QC-N"), ranges, run_directory=tmp_path / "run")
    job.compile()
    (row,) = job.host_nodes
    assert row["node"] == f"{op}_1"
    assert "the input has at least 0 fraction bits, found -14" in row["reason"]


def test_a_layer_norm_of_tiny_inputs_is_refused_with_the_limit(tmp_path: Path) -> None:
    net = Net()
    path, ranges = tmp_path / "odd.onnx", tmp_path / "odd.tranges"
    normed = net.node("LayerNormalization", net.node("Relu", "x"), net.reals(8), net.reals(8), axis=-1)
    onnx.save(net.model(normed, (1, 8)), path)
    ranges.write_text(f'{{"x": [-1e-9, 1e-9], "Relu_0_0": [0, 1e-9], "{normed}": [-2, 2]}}')
    job = ChimeraJob(path, HWConfig("QC-N"), ranges, run_directory=tmp_path / "run")
    job.compile()
    (row,) = job.host_nodes
    assert "epsilon is less than 2**61 units of the squares, found 1e-05" in row["reason"]


def test_an_exclusion_is_a_name(tmp_path: Path) -> None:
    net = Net()
    path = tmp_path / "odd.onnx"
    onnx.save(net.model(net.node("Relu", "x"), (1, 8)), path)
    with pytest.raises(UserError, match="exclude must be a list of node names, found 1 in it"):
        ChimeraJob(path, exclude=[1], run_directory=tmp_path / "run").compile()  # type: ignore[list-item]


def view(net: Net) -> str:
    return str(net.node("Unsqueeze", "x", np.array([0], np.int64)))


@pytest.mark.parametrize(("case", "size"), [(view, 4.0), (exponential, 4.0), (exponential, -4.0), (reciprocal, 6.0)])
def test_what_exceeds_the_calibrated_range_is_explained(
    case: Callable[[Net], str], size: float, tmp_path: Path
) -> None:
    net = Net()
    _, result = validated(net, case(net), (2, 8, 8), tmp_path, "float", size)
    assert not result.passed  # the gate shows it
    assert result.summary["isolated_unexplained"] == 0
    assert result.summary["isolated_reasons"]["range clipped"] > 0
