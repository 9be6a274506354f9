"""The bias that carries the input's zero point: all of int32 is allowed, and what is outside is named."""

from __future__ import annotations

import numpy as np
import pytest

from epu.errors import UnsupportedNode
from epu.graph import Node
from epu.lowering.requantisation import folded_bias


def folded(bias: int, zero: int = 0) -> int:
    found = folded_bias(Node("n", "QGemm", ["x", "w"], ["y"], {}), np.array([-zero]), np.array([bias]))
    assert found is not None
    return int(found[0])


@pytest.mark.parametrize("bias", [-(2**31), 2**31 - 1])
def test_both_ends_of_int32_fit(bias: int) -> None:
    assert folded(bias) == bias


@pytest.mark.parametrize(("bias", "zero"), [(-(2**31), 1), (2**31 - 1, -1)])
def test_one_more_is_refused_with_its_value(bias: int, zero: int) -> None:
    with pytest.raises(UnsupportedNode, match=rf"must fit int32, found {bias - zero}\. Quantise the weights"):
        folded(bias, zero)
