"""What a report says of a tensor's values: extremes, elements at the limits of their word, and a digest to tell runs apart."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIGEST_BYTES = 8


@dataclass(frozen=True)
class TensorFacts:
    """Of raw integers: the lowest and highest, how many lie at the lowest or highest integer of the word, and of how many."""

    dtype: str
    low: int
    high: int
    at_limit: int
    total: int
    digest: str


def facts_of(tensors: Mapping[str, NDArray[Any]]) -> dict[str, TensorFacts]:
    """Facts by tensor name; empty tensors and what is not integer are left out."""
    return {name: _facts(array) for name, array in tensors.items() if array.size and array.dtype.kind in "iu"}


def _facts(array: NDArray[Any]) -> TensorFacts:
    word = np.iinfo(array.dtype)
    low, high = int(array.min()), int(array.max())
    at_limit = sum(int(np.count_nonzero(array == end)) for end in {low, high} & {word.min, word.max})
    digest = hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=DIGEST_BYTES).hexdigest()
    return TensorFacts(array.dtype.name, low, high, at_limit, array.size, digest)
