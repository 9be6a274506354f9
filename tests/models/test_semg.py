"""The synthetic EMG: repeatable, balanced, and with the spectrum and the anatomy of the real thing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from epu.errors import UserError
from epu.models import GESTURES, waveformer_windows

COUNT = 240
FREQUENCY = np.fft.rfftfreq(1000, 1e-3)
LABELS = [2, 3, 4, 0, 5, 1]  # of the first six test windows, and their standard deviations
DEVIATIONS = [0.12892, 0.11353, 0.06611, 0.01177, 0.15735, 0.05842]
RELAX, CLOSE, FLEXION, EXTENSION, ULNAR, RADIAL = range(6)


@pytest.fixture(scope="module")
def recorded() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    windows, labels = waveformer_windows("train", COUNT)
    return windows[:, 0].astype(np.float64), labels


def power(windows: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Mean square of each electrode [windows, 8] between two frequencies, both included."""
    spectrum = np.abs(np.fft.rfft(windows, axis=-1)) ** 2 * 2 / 1000**2
    return spectrum[..., (low <= FREQUENCY) & (high >= FREQUENCY)].sum(axis=-1)


def test_a_larger_count_appends_and_splits_differ() -> None:
    windows, labels = waveformer_windows("test", 7)
    more, more_labels = waveformer_windows("test", 14)
    assert windows.shape == (7, 1, 8, 1000)
    assert windows.dtype == np.float32
    assert np.array_equal(more[:7], windows)
    assert np.array_equal(more_labels[:7], labels)
    for other in ("train", "calibration"):
        assert not np.array_equal(waveformer_windows(other, 7)[0][0], windows[0])


def test_the_windows_are_those_the_weights_were_trained_for() -> None:
    windows, labels = waveformer_windows("test", 6)
    assert labels.tolist() == LABELS
    assert windows.std(axis=(1, 2, 3)) == pytest.approx(DEVIATIONS, abs=1e-4)


def test_each_six_windows_hold_every_gesture(recorded: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    groups = recorded[1].reshape(-1, 6)
    assert (np.sort(groups, axis=1) == np.arange(6)).all()
    assert len({tuple(group) for group in groups}) > 30
    assert len(GESTURES) == 6


def test_values_are_codes_of_the_converter(recorded: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    codes = recorded[0] * 2048
    assert (codes == np.rint(codes)).all()
    assert codes.min() >= -2048
    assert codes.max() <= 2047
    assert (np.abs(recorded[0]) > 0.99).mean() < 1e-3  # clipped


def test_spectrum_of_a_contraction(recorded: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    windows = recorded[0][recorded[1] != RELAX]
    spectrum = (np.abs(np.fft.rfft(windows, axis=-1)) ** 2).mean(axis=(0, 1))
    share = spectrum / spectrum[20:].sum()  # lines are 1 Hz apart
    assert share[20:451].sum() > 0.99
    assert share[:16].sum() < 0.1
    assert share[451:].mean() < share[440:450].mean() / 2
    median = 20 + int(np.searchsorted(np.cumsum(share[20:]), 0.5))
    assert 70 <= median <= 130  # Hz, the range reported for forearm muscles


def test_mains_hum_stands_out_at_rest(recorded: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    rest = recorded[0][recorded[1] == RELAX]
    beside = (power(rest, 47, 48) + power(rest, 52, 53)) / 4
    assert np.median(power(rest, 50, 50) / beside) > 5
    assert np.median(power(rest, 150, 150) / power(rest, 153, 153)) > 1


def test_each_gesture_is_loudest_over_its_muscles(recorded: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    windows, labels = recorded
    loudness = np.stack([np.sqrt(power(windows[labels == g], 70, 450)).mean(axis=0) for g in range(6)])
    assert loudness[RELAX].max() < 0.3 * loudness[1:].max(axis=1).min()
    assert loudness[CLOSE].argmax() == 0
    assert loudness[EXTENSION].argmax() in (4, 5)
    assert set(np.argsort(loudness[ULNAR])[-2:]) <= {1, 2, 3}
    assert set(np.argsort(loudness[RADIAL])[-2:]) <= {5, 6, 7}
    palm, back = [7, 0, 1], [3, 4, 5]
    assert loudness[FLEXION][palm].sum() > 2 * loudness[FLEXION][back].sum()
    assert loudness[EXTENSION][back].sum() > 2 * loudness[EXTENSION][palm].sum()


def test_contractions_begin_and_relaxation_follows_one(recorded: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    windows, labels = recorded
    first, last = (np.square(part).sum(axis=(1, 2)) for part in (windows[..., :250], windows[..., -250:]))
    assert np.median((last / first)[labels != RELAX]) > 1.2
    assert (last / first)[labels == RELAX].min() < 0.5
    assert (last / first)[labels != RELAX].max() > 10  # onset within the window


def test_subjects_differ(recorded: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    windows, labels = recorded
    loudness = np.sqrt(power(windows[labels == EXTENSION], 70, 450))
    share = loudness / loudness.sum(axis=1, keepdims=True)
    assert share.std(axis=0)[[4, 5]].min() > 0.02
    assert len(set(share.argmax(axis=1))) > 1


@pytest.mark.parametrize(
    ("split", "count", "message"),
    [
        ("validation", 1, "split must be one of train, test, calibration, found 'validation'"),
        ("test", 0, "count must be at least 1, found 0"),
    ],
)
def test_what_there_is_not(split: str, count: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        waveformer_windows(split, count)
