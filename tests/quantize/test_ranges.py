"""The .tranges file, and the ranges observed: exact extremes, whatever the tensors hold."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import model_of, node, normal, value

from epu.errors import UserError
from epu.quantization.observe import observe_ranges
from epu.quantization.session import open_session
from epu.ranges import load_ranges, require, save_ranges


def test_round_trip_is_exact(tmp_path: Path) -> None:
    ranges = {"b": (-0.1, float(np.float32(0.3))), "a": (0.0, 1e-30), "ä/:0": (-3.4e38, 2.0)}
    save_ranges(ranges, tmp_path / "m.tranges")
    assert load_ranges(tmp_path / "m.tranges") == ranges
    assert list(load_ranges(tmp_path / "m.tranges")) == ["b", "a", "ä/:0"]


def test_file_is_one_flat_object(tmp_path: Path) -> None:
    save_ranges({"x": (-1.0, 2.0)}, tmp_path / "m.tranges")
    assert json.loads((tmp_path / "m.tranges").read_text()) == {"x": [-1.0, 2.0]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a .tranges file"),
        ("\xff", "is not a .tranges file"),
        ("[]", "must hold one JSON object, found list"),
        ('{"x": 3}', "range of tensor 'x' must be .*, found 3"),
        ('{"x": [1]}', r"range of tensor 'x' must be .*, found \[1\]"),
        ('{"x": [1, 0]}', "low <= high"),
        ('{"x": [NaN, 1]}', "finite"),
        ('{"x": [0, Infinity]}', "finite"),
        ('{"x": [true, 2]}', "range of tensor 'x'"),
        ('{"x": ["0", "1"]}', "range of tensor 'x'"),
    ],
)
def test_malformed_file(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "m.tranges").write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=message):
        load_ranges(tmp_path / "m.tranges")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"m\.tranges' does not exist\. Write it with epu quantize"):
        load_ranges(tmp_path / "m.tranges")


def test_require() -> None:
    assert require({"x": (0.0, 1.0)}, "x", "relu") == (0.0, 1.0)
    with pytest.raises(UserError) as caught:
        require({"conv_1": (0.0, 1.0)}, "conv_2", "block/relu")
    assert str(caught.value) == (
        "ONNX node 'block/relu': the .tranges file has no range for its tensor 'conv_2' (1 entries). "
        "Did you mean 'conv_1'? Write the file anew from the same model with epu quantize."
    )


NET = model_of(
    [node("MatMul", ["x", "w"], "m"), node("Relu", ["m"], "r"), node("Shape", ["r"], "s"), node("Log", ["x"], "y")],
    [value("x", [2, 4])],
    [value("y", [2, 4])],
    {"w": normal(0, 4, 3)},
)


def test_extremes_are_those_of_numpy() -> None:
    samples = [{"x": np.abs(normal(seed, 2, 4))} for seed in range(5)]
    session = open_session(NET, ["m", "r"])
    runs = [dict(zip(["m", "r", "y"], session.run(["m", "r", "y"], s), strict=True)) | s for s in samples]
    expected = {
        name: (float(min(r[name].min() for r in runs)), float(max(r[name].max() for r in runs))) for name in runs[0]
    }
    assert observe_ranges(NET, iter(samples)) == expected


def observed(caplog: pytest.LogCaptureFixture, *samples: Any) -> tuple[dict[str, tuple[float, float]], list[str]]:
    with caplog.at_level(logging.WARNING, "epu"):
        ranges = observe_ranges(NET, [{"x": np.array(sample, np.float32)} for sample in samples])
    return ranges, [record.getMessage() for record in caplog.records]


def test_infinite_elements_are_left_out_and_named(caplog: pytest.LogCaptureFixture) -> None:
    ranges, warnings = observed(caplog, [[1, 2, 3, 4], [5, 6, 7, 0]])  # log 0 = -inf
    assert ranges["y"] == (0.0, pytest.approx(np.log(7)))
    assert warnings == ["Tensor 'y' holds NaN or infinity: its range [0, 1.94591] is of the finite values"]


def test_nan_in_one_sample(caplog: pytest.LogCaptureFixture) -> None:
    ranges, warnings = observed(caplog, np.ones((2, 4)), [[-1, 2, 2, 2], [2, 2, 2, 2]])  # log -1 = NaN
    assert ranges["y"] == (0.0, pytest.approx(np.log(2)))
    assert ["'y'" in text for text in warnings] == [True]


def test_nan_in_an_input(caplog: pytest.LogCaptureFixture) -> None:
    ranges, warnings = observed(caplog, [[np.nan, 2, 2, 2], [1, 1, 1, 1]])
    assert ranges["x"] == (1, 2)
    assert any("Tensor 'x' holds NaN" in text for text in warnings)
    assert np.isfinite(list(ranges.values())).all()


def test_nothing_finite(caplog: pytest.LogCaptureFixture) -> None:
    ranges, warnings = observed(caplog, np.full((2, 4), -1.0))
    assert ranges["y"] == (-1, 1)
    assert "Tensor 'y' has no finite value in any calibration sample" in warnings[-1]


def test_always_zero(caplog: pytest.LogCaptureFixture) -> None:
    ranges, warnings = observed(caplog, np.zeros((2, 4)))
    assert ranges["m"] == ranges["x"] == (-1, 1)
    assert "Tensor 'm' is zero in all calibration samples" in "".join(warnings)


def test_large_finite_values_need_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    ranges, warnings = observed(caplog, np.full((2, 4), 3e38))  # their sum is infinite
    assert ranges["x"] == (float(np.float32(3e38)),) * 2
    assert not any("'x'" in text for text in warnings)


def test_node_that_stops_names_the_sample() -> None:
    gather = model_of(
        [node("Gather", ["table", "i"], "y")], [value("i", [1], 7)], [value("y", [1])], {"table": normal(0, 3)}
    )
    samples = [{"i": np.array([1])}, {"i": np.array([9])}]
    with pytest.raises(UserError, match="calibration sample 1: ONNX Runtime stopped: .*Gather.*idx=9"):
        observe_ranges(gather, samples)
