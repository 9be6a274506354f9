"""Seeded weights shaped like trained ones: heavy tails, a few loud channels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

TAIL_DEGREES = 6  # Student t: kurtosis 6, what trained linear layers show
LOUD_CHANNELS = 1 / 40  # share of LayerNorm channels with a large gamma


def linear_weight(random: np.random.Generator, inputs: int, outputs: int, gain: float) -> Array:
    """Return [inputs, outputs] heavy-tailed weights; a unit-variance input gives outputs of variance gain**2."""
    unit = np.sqrt((TAIL_DEGREES - 2) / TAIL_DEGREES)
    tailed = random.standard_t(TAIL_DEGREES, (inputs, outputs)) * unit
    weight: Array = (tailed * (gain / np.sqrt(inputs))).astype(np.float32)
    return weight


def bias(random: np.random.Generator, size: int, deviation: float) -> Array:
    """Return [size] normal values of the given standard deviation."""
    return (deviation * random.standard_normal(size)).astype(np.float32)


def layer_norm_gain(random: np.random.Generator, size: int) -> Array:
    """Return [size] gammas around 1 with a few channels at 2 to 4, as trained transformers have."""
    gamma = 1 + 0.15 * random.standard_normal(size)
    loud = random.choice(size, max(1, round(size * LOUD_CHANNELS)), replace=False)
    gamma[loud] = random.uniform(2, 4, loud.size)
    return gamma.astype(np.float32)
