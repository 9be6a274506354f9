"""Clips of int8 codes behind a requantize, as QNN graphs written by hand and by other frontends have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from relay_running import HOST, built_outputs
from tvm import relay

import epu
from epu.errors import UnsupportedNode

SHAPE = (1, 8, 16, 16)


def const(value: Any) -> Any:
    return relay.const(value)


def product() -> tuple[Any, Any]:
    """The input, and a quantised convolution with its bias, requantised to int8."""
    random = np.random.default_rng(0)
    x = relay.var("x", shape=SHAPE, dtype="int8")
    weights = const(random.integers(-60, 60, (16, 8, 3, 3)).astype("int8"))
    sums = relay.qnn.op.conv2d(
        x, weights, const(0), const(0), const(0.05), const(0.01), kernel_size=(3, 3), channels=16, padding=(1, 1)
    )
    sums = relay.nn.bias_add(sums, const(random.integers(-500, 500, 16).astype("int32")))
    return x, relay.qnn.op.requantize(sums, const(0.0005), const(0), const(0.06), const(-3), out_dtype="int8")


@pytest.mark.parametrize(
    "clip",
    [
        lambda codes: relay.clip(codes, -3, 100),
        relay.nn.relu,
        lambda codes: relay.maximum(codes, const(np.int8(5))),
        lambda codes: relay.minimum(const(np.int8(5)), codes),
    ],
    ids=["clip", "relu", "maximum", "minimum"],
)
def test_a_clip_of_codes_runs_on_the_epu_and_means_what_the_host_computes(clip: Any) -> None:
    x, codes = product()
    module = tvm.IRModule.from_expr(relay.Function([x], clip(codes)))
    assert {row.where for row in epu.placement(module)} == {"EPU"}
    sample = {"x": np.random.default_rng(1).integers(-128, 127, SHAPE).astype("int8")}
    (mine,), (host,) = (built_outputs(module, sample, target) for target in ("epu", HOST))
    np.testing.assert_array_equal(mine, host)
    assert len(np.unique(mine)) < 256


def test_an_empty_clip_is_refused() -> None:
    x, codes = product()
    module = tvm.IRModule.from_expr(relay.Function([x], relay.clip(codes, 7, 3)))
    with pytest.raises(UnsupportedNode, match="lower limit must not exceed the upper one, found 7.0 and 3.0"):
        epu.to_graph(module, "empty")
