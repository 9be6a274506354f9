"""Custom operators in Relay: the call that the importer makes, and relay.build for the target "epu"."""

from __future__ import annotations

from typing import Any

import custom_cases
import numpy as np
import onnx
import pytest
from custom_cases import SQUARE, call_node, changed, model_of
from onnx import helper
from small_attention import sample, small_attention

import epu
from epu.custom_match import replace_subgraphs
from epu.custom_ops import using
from epu.errors import UserError
from epu.hw_config import HWConfig

HW = HWConfig(product="QC-N")
SCALE = {"s": np.float32(2**-5), "z": np.int8(0), "bias": np.linspace(-1, 1, 8).astype(np.float32)}


def quantised(*after: onnx.NodeProto) -> onnx.ModelProto:
    """Float to int8 and back, then the nodes given."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="dequantize"),
    ]
    return model_of([*nodes, *after], (4, 8), SCALE)


def built(model: onnx.ModelProto, custom_ops: Any, **settings: Any) -> Any:
    from tvm import relay
    from tvm.contrib import graph_executor

    with epu.config(HW, custom_ops=custom_ops, **settings):
        module, params, _ = epu.import_onnx(model)
        library = relay.build(module, target="epu", params=params)
    import tvm

    return graph_executor.GraphModule(library["default"](tvm.cpu()))


def run(executor: Any, x: Any) -> Any:
    executor.set_input("x", x)
    executor.run()
    return executor.get_output(0).numpy()


def test_the_call_in_relay() -> None:
    with using(custom_cases.OPS):
        module, _, names = epu.import_onnx(quantised(call_node("square", ["d", "bias"], "y", power=2)))
    call = module["main"].body
    assert call.op.name == "contrib.epu.quadric_custom_op"
    assert (str(call.attrs["op_name"]), str(call.attrs["attributes"])) == ("square", '{"power": 2}')
    assert [int(size) for size in call.checked_type.shape] == [4, 8]
    assert names["custom", 0] == "y"


def test_a_kernel_in_relay_build() -> None:
    x = np.random.default_rng(0).uniform(-4, 4, (4, 8)).astype(np.float32)
    found = run(built(quantised(call_node("square", ["d", "bias"], "y")), custom_cases), x)
    codes = np.clip(np.rint(x * 32), -128, 127) / 32
    assert np.abs(found - (codes**2 + SCALE["bias"])).max() < 1e-6


def test_a_composition_in_relay_build() -> None:
    from epu.ort_reference import OrtReference

    model = replace_subgraphs(small_attention(), "waveAttention", ["qkv"], "merged")
    found = run(built(model, "epu.models.wave_attention"), sample())
    expected = OrtReference(model).run({"x": sample()})["y"]
    assert np.abs(found - expected).max() <= 1 / 40 + 1e-6  # a code of the product, at a tie


def test_a_partitioned_module_holds_the_call() -> None:
    with epu.config(HW, custom_ops=custom_cases):
        module, params, _ = epu.import_onnx(quantised(call_node("square", ["d", "bias"], "y")))
        parts = epu.partition_for_epu(module, params)
        rows = {row.node: row.where for row in epu.placement(parts)}
    assert rows["custom"] == "EPU"
    assert "epu.QuadricCustomOp" in str(parts)


def test_a_custom_node_has_no_kernel_on_the_host() -> None:
    model = quantised(call_node("square", ["d", "bias"], "y"))
    with pytest.raises(UserError, match=r"'custom'.*excluded by the user"):
        built(model, custom_cases, exclude=["custom"])
    alone = model_of([call_node("square", ["x", "bias"], "y")], (4, 8), SCALE)
    with pytest.raises(UserError, match=r"ONNX node 'custom' .* from the host must be read by QuantizeLinear"):
        built(alone, custom_cases)


def test_a_kernel_that_differs_from_its_reference_is_refused() -> None:
    from types import ModuleType

    from epu.custom_load import load_custom_ops

    module = ModuleType("wrong")
    module.square = changed(SQUARE, reference=lambda call, x: x[0] * 0)["square"]  # type: ignore[attr-defined]
    assert load_custom_ops(module).keys() == {"square"}
    with pytest.raises(UserError, match="golden must equal the reference"):
        built(quantised(call_node("square", ["d", "bias"], "y")), module)
