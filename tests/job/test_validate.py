"""Validation of a program assembled by hand: modes, forcing, golden, gates, and what a wrong program shows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_module import QUANTIZE, SHAPE, TinyModule, tiny_model, tiny_program

from epu.colour import RED
from epu.metrics import MODES
from epu.reports import to_json
from epu.simulator.instructions import Alu, Imm
from epu.simulator.program import DebugMap
from epu.stages import Chain
from epu.validate import gather
from epu.validation_result import ValidationResult

X = np.array([[0.0, 0.26, -0.76, 1.3, 2.0, -3.0, 63.0, 500.0]], np.float32)


def result_of(module: TinyModule, x: NDArray[Any] = X, rounding: str = "exact") -> ValidationResult:
    return ValidationResult(
        "tiny.onnx", "QC-N", rounding, gather(Chain.of(tiny_model(), module), {"x": x}, rounding=rounding)
    )


def off_by(amount: int) -> TinyModule:
    """A program whose quantise kernel adds ``amount`` to each code; golden does not."""
    rounding = QUANTIZE[3]
    assert isinstance(rounding, Alu)
    wrong = replace(rounding, op="mulr", b=Imm(1), c=Imm(7), d=Imm(amount))
    return TinyModule(program=tiny_program((*QUANTIZE[:3], wrong, *QUANTIZE[4:])))


def test_a_right_program_passes_with_every_node_output_in_every_mode() -> None:
    result = result_of(TinyModule())
    assert result.passed, result.failures
    for mode in MODES:
        names = [row["Name"] for row in result if row["mode"] == mode and row["Type"] == "Node"]
        assert names == ["quantize:0", "dequantize:0", "relu:0"]
    assert [row["Name"] for row in result if row["Type"] == "Output"] == ["y"]
    assert {row["dtype"] for row in result} == {"int8", "custom[qfp.8]32"}
    assert result.first_divergence is None


def test_summary_of_a_right_program() -> None:
    summary = result_of(TinyModule()).summary
    seconds = summary.pop("seconds")
    end_to_end = summary.pop("end_to_end")
    assert set(seconds) == {"ort", "iss"}
    assert summary == {
        "nodes": 3,
        "skipped": 0,
        "int8_elements": 8,
        "isolated_int8_mismatches": 0,
        "isolated_counted": 0,
        "isolated_mismatches": 0,
        "isolated_reasons": {},
        "isolated_unexplained": 0,
        "isolated_explained_percent": 100.0,
        "isolated_max_lsb": 0.0,
        "segment_int8_mismatches": 0,
        "segment_min_psnr_db": float("inf"),
        "iss_equals_golden": True,
        "first_divergence": None,
    }
    assert end_to_end["y"]["mismatches"] == 0
    assert end_to_end["y"]["total"] == 8


def test_the_floor_is_what_one_lsb_of_the_input_does_in_ort_alone() -> None:
    floor = result_of(TinyModule()).summary["end_to_end"]["y"]["one_lsb_floor"]
    assert floor["mismatches"] == 1  # element 4: 2.0 + 0.5
    assert floor["max_abs_err"] == 0.5


def test_isolated_shows_only_the_kernel_that_is_wrong() -> None:
    result = result_of(off_by(1))
    by_mode = {mode: {row["Name"]: row for row in result if row["mode"] == mode} for mode in MODES}
    assert by_mode["isolated"]["quantize:0"]["Bitwise Mismatches"] == 7  # the saturated 500.0 is right anyway
    assert by_mode["isolated"]["quantize:0"]["reasons"] == {"unexplained": 7}
    assert by_mode["isolated"]["relu:0"]["Bitwise Mismatches"] == 0
    assert by_mode["end_to_end"]["relu:0"]["Bitwise Mismatches"] > 0
    assert by_mode["end_to_end"]["quantize:0"]["reasons"] == {"unexplained": 7}
    assert list(by_mode["end_to_end"]["relu:0"]["reasons"]) == ["upstream"]
    assert by_mode["segment"]["relu:0"]["Bitwise Mismatches"] == 0
    assert result.first_divergence == "quantize:0"


def test_gates_of_a_wrong_program_each_have_a_sentence() -> None:
    one, two = result_of(off_by(1), rounding="ort"), result_of(off_by(2))
    assert not one.passed
    assert any("The ISS differs from golden in 3 tensors, the first is q" in each for each in one.failures)
    assert any("7 of 8 int8 elements differ" in each for each in one.failures)
    assert not any("miss the gate" in each for each in one.failures)  # 1 LSB is within the gate of a row
    assert any("isolated: 1 node outputs miss the gate" in each and "quantize:0" in each for each in two.failures)


def test_a_truncating_shift_is_red() -> None:
    rounding = QUANTIZE[3]
    assert isinstance(rounding, Alu)
    result = result_of(TinyModule(program=tiny_program((*QUANTIZE[:3], replace(rounding, op="shr"), *QUANTIZE[4:]))))
    row = next(each for each in result if each["Name"] == "quantize:0")
    assert list(row["reasons"]) == ["unexplained"]
    assert row["Comment"] == f"unexplained {row['Bitwise Mismatches']}"
    assert result.summary["isolated_explained_percent"] == 0.0


def test_red_is_for_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = result_of(off_by(1))
    assert RED not in str(wrong)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert f"{RED}quantize:0 (PASS, Node, int8)" in str(wrong)
    assert f"{RED}relu:0" not in str(wrong)
    assert RED not in str(result_of(TinyModule()))


def test_a_tensor_nobody_shows_is_reported_and_fails() -> None:
    module = TinyModule()
    module.program = replace(module.program, debug=DebugMap(module.program.debug.kernels, ()))
    result = result_of(module)
    assert result.summary["skipped"] == 1
    assert [row["S"] for row in result if row["Name"] == "dequantize:0"] == ["SKIPPED"] * 3
    assert any("1 ONNX node outputs cannot be observed, the first is dequantize:0" in each for each in result.failures)


def test_the_result_reads_as_list_text_and_json() -> None:
    result = result_of(TinyModule())
    assert len(result) == 10
    assert result[0]["Name"] == "quantize:0"
    assert len(result[:3]) == 3
    assert repr(result).startswith("[{'S': 'PASS', 'Type': 'Node', 'Name': 'quantize:0', 'dtype': 'int8', 'total': 8")
    text = str(result)
    assert "quantize:0 (PASS, Node, int8)" in text
    assert text.endswith("PASS")
    form = json.loads(to_json(result.to_dict()))
    assert {"model", "hw", "ort_version", "rounding", "rows", "summary"} <= set(form)
    assert len(form["rows"]) == 10
    assert form["rows"][0]["Max Abs Err Loc"] == [0, 0]


def test_progress_counts_kernels_per_mode() -> None:
    calls: list[tuple[str, int, int]] = []
    gather(Chain.of(tiny_model(), TinyModule()), {"x": X}, progress=lambda *each: calls.append(each))
    assert calls == [(mode, done, 2) for mode in MODES for done in (1, 2)]


@pytest.mark.parametrize("value", [0.25, -0.25, 0.75])
def test_ties_round_half_to_even_like_ort(value: float) -> None:
    assert result_of(TinyModule(), np.full(SHAPE, value, np.float32)).passed
