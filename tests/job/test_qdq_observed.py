"""Models in DQ → op → Q form, as ONNX Runtime's quantiser writes them: every node output is seen, and is what it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.observed import NodeOutput
from epu.quantize import compute_tensor_ranges
from epu.simulator.errors import ProgramError
from epu.simulator.machine import Machine
from epu.simulator.program import Program
from epu.simulator.simulation import simulate
from epu.simulator.taps import TapRecorder

pytest.importorskip("tvm", reason="the Relay door needs TVM")

Array = NDArray[Any]
Model = tuple[onnx.ModelProto, tuple[int, ...]]


class Sketch:
    """A float model with drawn weights."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.random = shape, np.random.default_rng(7)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        data = (self.random.standard_normal(shape) * 0.3).astype(np.float32)
        self.weights.append(numpy_helper.from_array(data, name))
        return name

    def add(self, op: str, inputs: list[str], output: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs, [output], f"{op}_{output}", **attributes))

    def model(self) -> Model:
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in self.ends()]
        graph = helper.make_graph(self.nodes, "sketch", ends[:1], ends[1:], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model), self.shape

    def ends(self) -> list[tuple[str, tuple[int, ...] | None]]:
        return [("x", self.shape), ("y", None)]


def convolutions() -> Model:
    """Bias and none, padding, depthwise, a residual sum, a product, a transposed one, a global average, a Gemm."""
    s = Sketch((1, 8, 10, 10))
    s.add("Conv", ["x", s.weight(16, 8, 3, 3), s.weight(16)], "c", pads=[1, 1, 1, 1])
    s.add("Relu", ["c"], "r")
    s.add("Conv", ["r", s.weight(16, 1, 3, 3)], "d", pads=[1, 1, 1, 1], group=16)
    s.add("Add", ["d", "r"], "a")
    s.add("Mul", ["a", "d"], "m")
    s.add("ConvTranspose", ["m", s.weight(16, 4, 2, 2), s.weight(4)], "t", strides=[2, 2])
    s.add("GlobalAveragePool", ["t"], "g")
    s.add("Flatten", ["g"], "f")
    s.add("Gemm", ["f", s.weight(4, 10), s.weight(10)], "y")
    return s.model()


def products() -> Model:
    """Constant and variable right sides, a bias node, a transpose, softmax."""
    s = Sketch((4, 6, 16))
    s.add("MatMul", ["x", s.weight(16, 24)], "q")
    s.add("MatMul", ["x", s.weight(16, 24)], "c")
    s.add("Add", ["c", s.weight(24)], "a")
    s.add("Relu", ["a"], "r")
    s.add("Transpose", ["r"], "t", perm=[0, 2, 1])
    s.add("MatMul", ["q", "t"], "s")
    s.add("Softmax", ["s"], "p", axis=-1)
    s.add("MatMul", ["p", "r"], "y")
    return s.model()


def pools() -> Model:
    """Averages (of 9 values; of 3 and 5, which stays fixed point), maxima, a swish, a concatenation of unlike scales."""
    s = Sketch((1, 8, 12, 12))
    s.add("Conv", ["x", s.weight(8, 8, 1, 1)], "c")
    s.add("AveragePool", ["c"], "a", kernel_shape=[3, 3])
    s.add("MaxPool", ["a"], "m", kernel_shape=[2, 2])
    s.add("Sigmoid", ["m"], "s")
    s.add("Mul", ["m", "s"], "w")
    s.add("Concat", ["w", "m"], "k", axis=1)
    s.add("AveragePool", ["k"], "y", kernel_shape=[5, 1], strides=[4, 1], pads=[2, 0, 2, 0])
    return s.model()


def ties() -> Model:
    """Means of 4 codes, sums of two tensors of one scale: many are ties, which float32 breaks either way."""
    s = Sketch((1, 8, 12, 12))
    s.add("Relu", ["x"], "r")
    s.add("AveragePool", ["r"], "a", kernel_shape=[2, 2], strides=[2, 2])
    s.add("Add", ["a", "a"], "y")
    return s.model()


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.left = [{"x": sample(seed, shape)} for seed in range(3)]

    def get_next(self) -> dict[str, Array] | None:
        return self.left.pop() if self.left else None


def sample(seed: int, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def job_of(
    sketch: Callable[[], Model], folder: Path, per_channel: bool, activations: str, rounding: str = "exact", **hw: Any
) -> tuple[ChimeraJob, dict[str, Array]]:
    """The compiled job of a model that ONNX Runtime has quantised, and an input."""
    (model, shape), path = sketch(), folder / "q.onnx"
    onnx.save(model, folder / "float.onnx")
    quantize_static(
        folder / "float.onnx",
        path,
        Samples(shape),
        quant_format=QuantFormat.QDQ,
        per_channel=per_channel,
        activation_type=QuantType.QUInt8 if activations == "uint8" else QuantType.QInt8,
        weight_type=QuantType.QInt8,
        extra_options={"ActivationSymmetric": activations == "symmetric", "WeightSymmetric": True},
    )
    ranges = folder / "q.tranges"
    compute_tensor_ranges(path, ranges, [{"x": sample(seed, shape)} for seed in range(3)])
    job = ChimeraJob(path, HWConfig("QC-N", **hw), ranges, rounding=rounding, run_directory=folder / "run")
    job.compile()
    return job, {"x": sample(9, shape)}


CASES = [
    (convolutions, False, "uint8", "exact"),
    (convolutions, True, "int8", "ort"),
    (convolutions, True, "symmetric", "exact"),
    (products, False, "symmetric", "ort"),
    (products, True, "symmetric", "exact"),
    (pools, True, "uint8", "exact"),
    (ties, False, "int8", "exact"),
    (ties, False, "symmetric", "ort"),
    (pools, False, "int8", "ort"),
]


@pytest.mark.parametrize(("sketch", "per_channel", "activations", "rounding"), CASES)
def test_every_node_output_is_seen_and_passes(
    tmp_path: Path, sketch: Callable[[], Model], per_channel: bool, activations: str, rounding: str
) -> None:
    job, inputs = job_of(sketch, tmp_path, per_channel, activations, rounding)
    result = job.validate_ort_iss(inputs)
    assert result.passed, result.failures
    assert result.summary["skipped"] == 0
    assert result.summary["segment_min_psnr_db"] >= 140
    assert result.summary["isolated_unexplained"] == 0
    repeated = [each.row for each in result.evidence.comparisons if made_by(job, each.output) in ("Add", "Mul")]
    assert rounding == "exact" or not any(row["Bitwise Mismatches"] for row in repeated if row["mode"] == "isolated")


def made_by(job: ChimeraJob, output: NodeOutput) -> str:
    """The float operator before a QuantizeLinear."""
    nodes = {name: node for node in job.chain.model.graph.node for name in node.output}
    node = nodes[output.tensor]
    return str(nodes[node.input[0]].op_type) if node.op_type == "QuantizeLinear" and node.input[0] in nodes else ""


def test_a_kernel_in_parts_shows_its_whole_sum(tmp_path: Path) -> None:
    job, inputs = job_of(convolutions, tmp_path, True, "uint8", ocm_size="2kB")
    parts = {tap.offset for tap in job.program.debug.taps if tap.tensor == "r"}
    assert len(parts) > 1
    result = job.validate_ort_iss(inputs)
    assert result.passed, result.failures
    program = job.program
    assert Program.from_bytes(program.to_bytes()).debug == program.debug
    (moved,) = program.debug.moved
    wrong = replace(program, debug=replace(program.debug, moved=(replace(moved, order=(0, 0)),)))
    with pytest.raises(ProgramError, match="moved 't' must hold a tapped tensor's elements"):
        Program.from_bytes(wrong.to_bytes())


def test_a_concat_lies_within_its_tensor(tmp_path: Path) -> None:
    job, _ = job_of(pools, tmp_path, False, "int8")
    debug = job.program.debug
    pieces = [each for each in debug.derived if each.columns is not None]
    assert {each.tensor for each in pieces} == {"k"}
    assert sum(each.columns.width for each in pieces if each.columns) * pieces[0].columns.rows == 16 * 9 * 9
    outside = tuple(replace(each, columns=replace(each.columns, first=10**6)) for each in pieces if each.columns)
    wrong = replace(job.program, debug=replace(debug, derived=outside))
    with pytest.raises(ProgramError, match="derived 'k' must lie within its tensor"):
        Program.from_bytes(wrong.to_bytes())


def test_the_observed_sum_is_the_sum_of_products(tmp_path: Path) -> None:
    job, inputs = job_of(products, tmp_path, True, "symmetric")
    seen = TapRecorder(job.program)
    raw = {each.name: np.rint(inputs["x"] * 2.0**each.decode.frac).astype(np.int32) for each in job.program.inputs}
    simulate(job.program, raw, listeners=(seen,))
    weights = numpy_helper.to_array(
        next(each for each in onnx.load(tmp_path / "q.onnx").graph.initializer if each.name == "w1_quantized")
    )
    codes = seen.tensors["x_QuantizeLinear_Output"].astype(np.int64)
    np.testing.assert_array_equal(seen.tensors["c"], codes @ weights.astype(np.int64))
    assert len(seen.decodes["c"].scale) == 24


def test_observing_changes_no_instruction() -> None:
    from epu.tir_schedules.compile_kernel import compile_kernel
    from epu.tir_schedules.convolution import ConvShape, convolution
    from epu.tir_schedules.matmul import MatmulShape, matmul

    window = ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
    kernels: list[tuple[Callable[[Any], Any], Any]] = [
        (matmul, MatmulShape(1, 40, 24, 2000, True, False, True, "exact")),
        (matmul, MatmulShape(3, 16, 16, 32, False, False, False, "exact")),
        (convolution, ConvShape(1, 1, 16, 16, 12, 12, *window, True, True, "exact")),
        (convolution, ConvShape(1, 16, 1, 1, 12, 12, *window, False, False, "exact")),
    ]
    machine: Machine = HWConfig("QC-N").machine
    for family, shape in kernels:
        plain, seen = (compile_kernel(family(each), machine) for each in (shape, replace(shape, observed=True)))
        assert plain.instructions == seen.instructions
        assert seen.taps
        assert not plain.taps
