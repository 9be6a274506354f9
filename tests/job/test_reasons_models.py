"""Reasons in whole validations of compiled models: all explained; with a fault in the program, red where the fault is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.metrics import DEFAULT_TOLERANCE, ISOLATED, measure
from epu.observed import NodeOutput, TensorMap, node_outputs
from epu.ort_reference import OrtReference
from epu.quantize import compute_tensor_ranges
from epu.simulator.program import Program
from epu.validate import Judge, Observed, run_mode
from epu.validation_result import ValidationResult

pytest.importorskip("tvm", reason="the Relay door needs TVM")

Array = NDArray[Any]
RANDOM = np.random.default_rng(5)
ROWS, WIDTH, HIDDEN = 24, 48, 32


def floats() -> onnx.ModelProto:
    """Codes, a product, then every kind of fixed-point operator, then codes again."""
    quantised = {
        "w": RANDOM.integers(-127, 128, (WIDTH, HIDDEN)).astype(np.int8),
        **{f"s{k}": np.array(scale, np.float32) for k, scale in enumerate((0.0271, 0.0053, 0.0391, 0.0183))},
        "z": np.array(0, np.int8),
        "gamma": RANDOM.normal(1, 0.2, HIDDEN).astype(np.float32),
        "beta": RANDOM.normal(0, 0.2, HIDDEN).astype(np.float32),
        "three": np.array(3.7, np.float32),
    }
    nodes = [
        ("QuantizeLinear", ["x", "s0", "z"], "q"),
        ("QLinearMatMul", ["q", "s0", "z", "w", "s1", "z", "s2", "z"], "m"),
        ("DequantizeLinear", ["m", "s2", "z"], "d"),
        ("LayerNormalization", ["d", "gamma", "beta"], "n"),
        ("Div", ["n", "three"], "v"),
        ("Erf", ["v"], "e"),
        ("Mul", ["e", "n"], "p"),
        ("Softmax", ["p"], "t"),
        ("Sigmoid", ["p"], "g"),
        ("Add", ["t", "g"], "a"),
        ("QuantizeLinear", ["a", "s3", "z"], "y"),
    ]
    made = [helper.make_node(op, names, [out], f"{op}_{out}") for op, names, out in nodes]
    ends = [("x", TensorProto.FLOAT, (ROWS, WIDTH)), ("y", TensorProto.INT8, (ROWS, HIDDEN))]
    values = [helper.make_tensor_value_info(*end) for end in ends]
    weights = [numpy_helper.from_array(array, name) for name, array in quantised.items()]
    graph = helper.make_graph(made, "floats", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sample(seed: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).standard_normal((ROWS, WIDTH)).astype(np.float32)}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> ChimeraJob:
    folder = tmp_path_factory.mktemp("floats")
    onnx.save(floats(), folder / "m.onnx")
    ranges = folder / "m.tranges"
    compute_tensor_ranges(folder / "m.onnx", ranges, [sample(seed) for seed in range(3)])
    found = ChimeraJob(folder / "m.onnx", HWConfig("QC-N"), ranges, run_directory=folder / "run")
    found.compile()
    return found


def validated(job: ChimeraJob, program: Program | None = None) -> ValidationResult:
    """The validation, of another program where one is given."""
    compiled = job.compiled
    own = compiled.program
    compiled.program = program or own
    try:
        return job.validate_ort_iss(sample(9))
    finally:
        compiled.program = own


def reasons(result: ValidationResult, mode: str = "isolated") -> dict[str, dict[str, int]]:
    return {
        row["Name"].split("_")[0]: row["reasons"] for row in result if row["mode"] == mode and row["Type"] == "Node"
    }


def red(result: ValidationResult, mode: str = "isolated") -> list[str]:
    return [name for name, found in reasons(result, mode).items() if found.get("unexplained")]


def test_every_mismatch_has_a_reason(job: ChimeraJob) -> None:
    result = validated(job)
    summary = result.summary
    assert red(result) == red(result, "segment") == red(result, "end_to_end") == []
    assert summary["isolated_unexplained"] == 0
    assert summary["isolated_explained_percent"] == 100.0
    assert sum(summary["isolated_reasons"].values()) == summary["isolated_mismatches"] > 0
    assert summary["isolated_counted"] <= summary["isolated_int8_mismatches"]
    for row in result:
        assert sum(row["reasons"].values()) == row["Bitwise Mismatches"]


def test_a_wrong_weight_is_red_there_and_only_there(job: ChimeraJob) -> None:
    program = job.program
    constants = list(program.constants)
    sizes = [len(each.data) for each in constants]
    at = sizes.index(WIDTH * HIDDEN)
    data = bytearray(constants[at].data)
    data[100] ^= 64
    constants[at] = replace(constants[at], data=bytes(data))
    result = validated(job, replace(program, constants=tuple(constants)))
    assert red(result) == ["QLinearMatMul"]
    assert "QLinearMatMul" in red(result, "end_to_end")
    assert not result.passed
    assert "unexplained" in result.summary_table()
    assert reasons(result, "end_to_end")["LayerNormalization"].get("upstream")


FAULTY = ("QLinearMatMul", "LayerNormalization", "Erf", "Mul", "Sigmoid", "Add")


@pytest.mark.parametrize("op", FAULTY)
def test_a_wrong_multiplier_or_table_is_red(job: ChimeraJob, op: str) -> None:
    """The last shift of the kernel is one too many: half of each result."""
    program = job.program
    span = next(each for each in program.debug.kernels if any(node.startswith(op) for node in each.nodes))
    shifts = [
        pc
        for pc in range(span.start_pc, span.end_pc)
        if getattr(program.code[pc], "op", "") in ("mulr", "rshr") and hasattr(program.code[pc], "saturate")
    ]
    code = list(program.code)
    last: Any = code[shifts[-1]]
    field = "c" if last.op == "mulr" else "b"
    amount = getattr(last, field)
    if not hasattr(amount, "value"):
        pytest.skip("the shift is no immediate")
    code[shifts[-1]] = replace(last, **{field: replace(amount, value=amount.value + 1)})
    assert red(validated(job, replace(program, code=tuple(code)))) == [op]


UNITS = {"DequantizeLinear": 2, "Div": 2, "Mul": 2, "Add": 3, "Erf": 60, "Sigmoid": 60, "Softmax": 1000}


@pytest.mark.parametrize("op", UNITS)
def test_a_few_units_off_are_beyond_the_bound_of_the_operator(job: ChimeraJob, op: str) -> None:
    """Bounds are tight: what float32 cannot show is red too."""
    inputs = sample(9)
    ort = OrtReference(job.chain.model).run(inputs)
    (seen,) = run_mode(job.chain, inputs, ort, ISOLATED)
    output = next(each for each in node_outputs(job.chain.model) if each.op == op)
    assert judged(job, ort, seen, output) == 0
    value = seen.tensors[output.tensor].copy()
    kind = TensorMap(job.chain.model, job.compiled).type_of(output.tensor)
    found = measure(ort[output.tensor], value, kind)
    element = np.argmax(found.steps)
    value.flat[element] += UNITS[op] if value.flat[element] > found.grid.flat[element] else -UNITS[op]
    wrong = replace(seen, tensors={**seen.tensors, output.tensor: value})
    assert judged(job, ort, wrong, output) == 1


def judged(job: ChimeraJob, ort: dict[str, Array], seen: Observed, output: NodeOutput) -> int:
    """Unexplained elements."""
    row = Judge.of(job.chain, ort, DEFAULT_TOLERANCE).compare(output, [seen], ISOLATED).row
    return int(row["reasons"].get("unexplained", 0))
