"""Synthetic surface EMG: six gestures of hand and wrist, seen by eight electrodes round the forearm.

A window is the sum over the motor unit pools of six muscles of (spectrum of surface EMG) x (contraction over time) x
(loss on the way to the electrode), plus what an armband records besides: mains hum, baseline wander, noise, an ADC.
Angles are degrees round the forearm, 0 on the palm side, growing towards the little finger's side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epu.simulator.errors import UserError

Array = NDArray[np.float64]
Random = np.random.Generator

GESTURES = ("hand relax", "hand close", "wrist flexion", "wrist extension", "ulnar dev.", "radial dev.")
ELECTRODES = 8
SAMPLES = 1000
SAMPLE_RATE = 1000.0  # Hz
SPLITS = ("train", "test", "calibration")

MUSCLES = ("FCR", "FDS", "FCU", "ECU", "EDC", "ECR")
MUSCLE_ANGLE = np.array([338.0, 20.0, 70.0, 135.0, 185.0, 240.0])
MUSCLE_SPREAD = np.array([28.0, 42.0, 28.0, 28.0, 32.0, 28.0])  # a deep muscle (FDS) reaches more electrodes
ACTIVATION = np.array(  # gesture x muscle, as a part of the greatest voluntary contraction
    [
        [0.02, 0.02, 0.02, 0.02, 0.02, 0.02],
        [0.35, 1.00, 0.35, 0.25, 0.30, 0.45],
        [0.85, 0.60, 0.75, 0.12, 0.08, 0.10],
        [0.08, 0.15, 0.12, 0.65, 0.80, 0.85],
        [0.10, 0.25, 0.80, 0.80, 0.20, 0.08],
        [0.70, 0.20, 0.08, 0.10, 0.25, 0.85],
    ]
)

POOLS = np.array([-14.0, 0.0, 14.0])  # where the motor unit pools of a muscle lie relative to its middle
BAND = (20.0, 450.0)  # Hz, of an EMG amplifier
LOW_CORNER, HIGH_CORNER = 60.0, 120.0  # Hz, Shwedyk et al. 1977
MAINS = 50.0  # Hz
CROSS_TALK = 0.04  # part of each source that every electrode hears
FULL_EFFORT = 0.22  # RMS in ADC full scales
ADC_BITS = 12


@dataclass(frozen=True)
class Subject:
    """One arm with one placement of the armband."""

    rotation: float  # degrees
    electrode_gain: Array  # [electrodes]
    activation: Array  # [gestures, muscles]
    spread: Array  # [muscles], degrees
    high_corner: float  # Hz, falls with the thickness of the skin


def waveformer_windows(split: str = "test", count: int = 100) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return ``count`` windows [count, 1, 8, 1000] in ADC full scales and their labels [count] (see GESTURES).

    The splits "train", "test" and "calibration" share no subject. Each run of six windows holds every gesture once; a
    larger ``count`` only appends. Raises UserError for another split or a count below 1.
    """
    if split not in SPLITS:
        raise UserError(f"waveformer_windows: split must be one of {', '.join(SPLITS)}, found '{split}'.")
    if count < 1:
        raise UserError(f"waveformer_windows: count must be at least 1, found {count}.")
    key = SPLITS.index(split)
    labels = np.array([_label(key, index) for index in range(count)])
    windows = [semg_window(np.random.default_rng([key, index]), int(label)) for index, label in enumerate(labels)]
    return np.stack(windows)[:, None], labels


def _label(key: int, index: int) -> int:
    group, place = divmod(index, len(GESTURES))
    return int(np.random.default_rng([key, len(SPLITS), group]).permutation(len(GESTURES))[place])


def semg_window(random: Random, gesture: int) -> NDArray[np.float32]:
    """Return one window [8, 1000] of a gesture by a new subject."""
    subject = draw_subject(random)
    effort = random.uniform(0.25, 1.0) * subject.activation[gesture]
    sources = _sources(random, subject.high_corner) * (effort[:, None] * _envelopes(random, gesture))[:, None]
    muscle = FULL_EFFORT * np.einsum("emp,mpt->et", _mixing(subject), sources)
    return _digitise(subject.electrode_gain[:, None] * muscle + _disturbances(random))


def draw_subject(random: Random) -> Subject:
    """Return a subject: placement, skin, and a way of its own to do each gesture."""
    personal = random.lognormal(0.0, 0.35, ACTIVATION.shape) * ACTIVATION + random.uniform(0.0, 0.12, ACTIVATION.shape)
    rest = ACTIVATION[0]
    activation = np.where(np.greater(ACTIVATION, rest), personal, rest)
    return Subject(
        rotation=float(random.normal(0.0, 11.0)),
        electrode_gain=random.lognormal(0.0, 0.22, ELECTRODES),
        activation=activation,
        spread=MUSCLE_SPREAD * random.uniform(0.8, 1.35),
        high_corner=float(random.uniform(0.7, 1.3) * HIGH_CORNER),
    )


def _mixing(subject: Subject) -> Array:
    """Return the gain [electrodes, muscles, pools] with which each electrode hears each pool."""
    electrode = subject.rotation + np.arange(ELECTRODES) * (360.0 / ELECTRODES)
    place = MUSCLE_ANGLE[:, None] + POOLS
    distance = (electrode[:, None, None] - place + 180.0) % 360.0 - 180.0
    near = np.exp(-0.5 * (distance / subject.spread[:, None]) ** 2)
    return (near + CROSS_TALK) / np.sqrt(POOLS.size)


def _sources(random: Random, high_corner: float) -> Array:
    """Return [muscles, pools, samples] of unit-variance noise with the spectrum of surface EMG within BAND."""
    frequency = np.fft.rfftfreq(SAMPLES, 1 / SAMPLE_RATE)
    square = frequency**2
    density = square / ((square + LOW_CORNER**2) * (square + high_corner**2) ** 2)
    amplitude = np.sqrt(density) * ((frequency >= BAND[0]) & (frequency <= BAND[1]))
    shape = (len(MUSCLES), POOLS.size, frequency.size)
    waves = random.standard_normal(shape) + 1j * random.standard_normal(shape)
    noise = np.fft.irfft(amplitude * waves, SAMPLES, axis=-1)
    # for X = a (u + iv), Parseval gives the variance sum(4 a^2) / n^2
    return noise * (SAMPLES / (2 * np.sqrt(np.sum(amplitude**2))))


def _envelopes(random: Random, gesture: int) -> Array:
    """Return the contraction [muscles, samples] in 0..1.3: onset, ramp, hold with slow drift, tremor at 8-12 Hz.

    The onset lies before the window or in its first half; a relaxed window may hold the end of a contraction.
    """
    time = np.arange(SAMPLES) / SAMPLE_RATE
    muscles = (len(MUSCLES), 1)
    onset = random.uniform(-0.7, 0.5) + random.normal(0.0, 0.03, muscles)
    ramp = random.uniform(0.08, 0.35)
    rise = 0.5 - 0.5 * np.cos(np.pi * np.clip((time - onset) / ramp, 0.0, 1.0))
    drift = 1 + random.normal(0.0, 0.25, muscles) * (time - 0.5)
    tremor = 1 + random.uniform(0.03, 0.2) * np.sin(
        2 * np.pi * random.uniform(8.0, 12.0) * time + random.uniform(0, 2 * np.pi, muscles)
    )
    held = np.clip(rise * drift * tremor, 0.0, 1.3)
    if gesture:
        return held
    residue = random.uniform(0.0, 12.0) * (random.random() < 0.5)  # of the gesture before, in resting tones
    return tremor + residue * (1 - rise)


def _disturbances(random: Random) -> Array:
    """Return [electrodes, samples] of mains hum with its third harmonic, baseline wander and amplifier noise."""
    time = np.arange(SAMPLES) / SAMPLE_RATE
    electrodes = (ELECTRODES, 1)
    mains = 2 * np.pi * (MAINS + random.normal(0.0, 0.05)) * time + random.uniform(0, 2 * np.pi)
    skew = random.normal(0.0, 0.3, electrodes)
    hum = random.uniform(0.0, 0.03) * random.lognormal(0.0, 0.5, electrodes)
    hum = hum * (np.sin(mains + skew) + 0.2 * np.sin(3 * (mains + skew)))
    sway = random.uniform(0.3, 3.0, electrodes)
    wander = random.normal(0.0, 0.02, electrodes) * np.sin(2 * np.pi * sway * time + 2 * np.pi * random.random())
    return hum + wander + random.normal(0.0, 0.006, (ELECTRODES, SAMPLES))


def _digitise(volts: Array) -> NDArray[np.float32]:
    """Return what an ADC of full scale 1 reads, with clipping."""
    codes = 1 << (ADC_BITS - 1)
    read: NDArray[np.float32] = (np.clip(np.rint(volts * codes), -codes, codes - 1) / codes).astype(np.float32)
    return read
