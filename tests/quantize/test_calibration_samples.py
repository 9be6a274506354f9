"""Calibration streams: every kind gives the same samples, as often as wanted, and misfits are named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import model_of, node, normal, value

from epu.errors import UserError
from epu.quantization.samples import CheckedSamples, synthetic_samples

INT64 = 7
NET = model_of(
    [node("Gather", ["x", "i"], "y", axis=0)], [value("x", [2, 3]), value("i", [2], INT64)], [value("y", [2, 3])]
)
SAMPLES = [{"x": normal(seed, 2, 3), "i": np.array([seed % 2, 1])} for seed in range(4)]


class Reader:
    """As onnxruntime's CalibrationDataReader."""

    def __init__(self, samples: Iterable[dict[str, Any]]) -> None:
        self._samples = iter(samples)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._samples, None)


def stacked(path: Path, save: Callable[..., None] = np.savez, **change: Any) -> str:
    arrays = {name: np.stack([sample[name] for sample in SAMPLES]) for name in ("x", "i")} | change
    save(path / "c.npz", **{name: array for name, array in arrays.items() if array is not None})
    return str(path / "c.npz")


def same(found: Iterable[dict[str, Any]]) -> bool:
    found = list(found)
    equal = [np.array_equal(a[name], b[name]) for a, b in zip(found, SAMPLES, strict=True) for name in b]
    return all(equal) and all(sample.keys() == SAMPLES[0].keys() for sample in found)


@pytest.mark.parametrize("kind", ["list", "generator", "reader", "npz", "compressed"])
def test_every_kind_can_be_read_twice(kind: str, tmp_path: Path) -> None:
    sources: dict[str, Callable[[], Any]] = {
        "list": lambda: SAMPLES,
        "generator": lambda: (sample for sample in SAMPLES),
        "reader": lambda: Reader(SAMPLES),
        "npz": lambda: stacked(tmp_path),
        "compressed": lambda: Path(stacked(tmp_path, np.savez_compressed)),
    }
    samples = CheckedSamples(NET, sources[kind]())
    assert same(samples)
    assert same(samples)
    samples.close()


def test_close_removes_what_a_generator_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    samples = CheckedSamples(NET, iter(SAMPLES))
    assert len(list(tmp_path.rglob("*.npz"))) == len(SAMPLES)
    samples.close()
    assert list(tmp_path.iterdir()) == []


def test_double_becomes_float() -> None:
    sample = {"x": np.ones((2, 3), np.float64), "i": np.array([0, 1], np.int32)}
    (found,) = CheckedSamples(NET, [sample])
    assert (found["x"].dtype, found["i"].dtype) == (np.float32, np.int64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": normal(0, 3, 2)}, r"sample 1: input 'x' must have shape \[2, 3\], found \[3, 2\]"),
        ({"x": np.ones((2, 3), np.complex64)}, "sample 1: input 'x' must be float32, found complex64"),
        ({"i": np.array([0.5, 1.0])}, "sample 1: input 'i' must be int64, found float64"),
        ({"z": 0}, "sample 1 has 'z', which is no input of the model. Known: 'i', 'x'"),
        ({"x": None}, "sample 1 lacks input 'x'. Give an array for each of: x, i"),
    ],
)
def test_sample_that_does_not_fit(change: dict[str, Any], message: str) -> None:
    bad = {name: array for name, array in (SAMPLES[1] | change).items() if array is not None}
    with pytest.raises(UserError, match=f"calibration {message}"):
        list(CheckedSamples(NET, [SAMPLES[0], bad]))


def test_sample_that_is_no_dictionary() -> None:
    with pytest.raises(UserError, match="sample 0 must be a dictionary of input name to array, found ndarray"):
        list(CheckedSamples(NET, [normal(0, 2, 3)]))  # type: ignore[list-item]


@pytest.mark.parametrize("empty", [[], iter([])])
def test_no_sample(empty: Any) -> None:
    with (
        pytest.raises(UserError, match="calibration_data has no sample"),
        closing(CheckedSamples(NET, empty)) as samples,
    ):
        list(samples)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": normal(0, 2, 3)}, r"array 'x' must have shape \[samples, 2, 3\] in C order, found \[2, 3\]\. Stack"),
        ({"x": np.asfortranarray(normal(0, 4, 2, 3))}, "Fortran order"),
        ({"x": normal(0, 3, 2, 3)}, "must have as many samples as the others, found 'x' 3, 'i' 4"),
        ({"x": None}, "has no array 'x' for that input; it holds i"),
    ],
)
def test_npz_that_does_not_fit(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CheckedSamples(NET, stacked(tmp_path, **change))


def test_npz_that_is_missing_or_foreign(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"c\.npz' does not exist"):
        CheckedSamples(NET, tmp_path / "c.npz")
    (tmp_path / "c.npz").write_text("no archive")
    with pytest.raises(UserError, match=r"c\.npz' is not an \.npz file: File is not a zip file"):
        CheckedSamples(NET, tmp_path / "c.npz")


def test_npz_with_a_damaged_member(tmp_path: Path) -> None:
    path = Path(stacked(tmp_path))
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF  # within the data of the first array, which its checksum covers
    path.write_bytes(data)
    with pytest.raises(UserError, match="is damaged: Bad CRC-32.*Write it again"):
        list(CheckedSamples(NET, path))


def test_synthetic_samples_are_seeded() -> None:
    first, second = synthetic_samples(NET, 2, seed=3)
    assert np.array_equal(first["x"], synthetic_samples(NET, 1, seed=3)[0]["x"])
    assert not np.array_equal(first["x"], second["x"])
    assert not np.array_equal(first["x"], synthetic_samples(NET, 1, seed=4)[0]["x"])
    assert set(np.unique([s["i"] for s in synthetic_samples(NET, 20, seed=0)])) == {0, 1}


def test_synthetic_floats_are_normal() -> None:
    net = model_of([node("Relu", ["x"], "y")], [value("x", [100, 100])], [value("y", [100, 100])])
    (sample,) = synthetic_samples(net, 1, seed=0)
    assert sample["x"].dtype == np.float32
    assert abs(sample["x"].mean()) < 0.05
    assert abs(sample["x"].std() - 1) < 0.05
    assert abs(sample["x"]).max() <= 4


def test_synthetic_count() -> None:
    with pytest.raises(UserError, match="num_images must be at least 1, found 0"):
        synthetic_samples(NET, 0, seed=0)
