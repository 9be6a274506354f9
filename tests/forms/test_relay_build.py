"""``relay.build`` of Q/DQ forms: what works on codes in a job does so in a built module, and nothing stays on the host."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from qdq_models import model_of

tvm = pytest.importorskip("tvm", reason="the Relay door needs TVM")


@pytest.mark.parametrize("name", ["transpose_of_real_weights", "residual_sum_before_the_quantize"])
def test_a_form_runs_in_a_built_module(name: str) -> None:
    from tvm import relay
    from tvm.contrib import graph_executor

    from epu.relay_passes.import_onnx import import_onnx
    from epu.relay_passes.partition import epu_functions, partition_for_epu, placement

    model, feeds = model_of(name)
    module = import_onnx(model)[0]
    assert {row.where for row in placement(module, calibrated=False)} == {"EPU"}
    parts = partition_for_epu(module)
    assert len(epu_functions(parts)) == 1
    executor = graph_executor.GraphModule(relay.build(parts, target="epu")["default"](tvm.cpu()))
    executor.run(**feeds)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, atol=1e-6)
