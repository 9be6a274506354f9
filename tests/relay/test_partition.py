"""What goes to the EPU, what stays on the host and why, and that the parts still compute the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnxruntime.quantization import QuantFormat
from relay_models import Builder, attention, codes, normal, q, qlinear_network, quantised
from relay_running import built_outputs, ort_outputs
from spy import Spy, install
from tvm import relay

import epu
from epu.relay_passes.import_onnx import import_onnx
from epu.relay_passes.partition import Placement, epu_functions, is_partitioned, partition_for_epu, placement
from epu.relay_passes.to_graph import to_graph


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return install(monkeypatch)


def mixed() -> tuple[onnx.ModelProto, dict[str, Any]]:
    """EPU, an op the EPU lacks, EPU."""
    grow = Builder()
    x = grow.node("QuantizeLinear", ["x", *q(0.05)], "q1")
    x = grow.node("QLinearAdd", [x, *q(0.05), codes(7), *q(0.02), *q(0.1)], "add", "com.microsoft")
    x = grow.node("DequantizeLinear", [x, *q(0.1)], "d1")
    x = grow.node("Pow", [x, np.full(7, 17, np.float32)], "powers")
    x = grow.node("QuantizeLinear", [x, *q(0.3)], "q2")
    x = grow.node("DequantizeLinear", [x, *q(0.3)], "d2")
    inputs = {"x": normal(3, 7, scale=3)}
    return grow.model(inputs, [x]), inputs


def by_node(rows: list[Placement]) -> dict[str, Placement]:
    assert len({row.node for row in rows}) == len(rows)
    return {row.node: row for row in rows}


@pytest.mark.parametrize("network", [qlinear_network, attention])
def test_a_supported_network_is_one_function_with_every_node(network: Any) -> None:
    model, _ = network()
    module, _, names = import_onnx(model)
    (function,) = epu_functions(partition_for_epu(module)).values()
    graph = to_graph(function, "part", names)
    assert [node.name for node in graph.nodes] == [node.name for node in model.graph.node]


def test_composites_carry_the_operator_and_the_calls_they_stand_for() -> None:
    (function,) = epu_functions(partition_for_epu(import_onnx(qlinear_network()[0])[0])).values()
    found: list[tuple[str, str]] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relay.Function) and expr.attrs and "Composite" in expr.attrs:
            found.append((str(expr.attrs["Composite"]), str(expr.attrs["PartitionedFromPattern"])))

    relay.analysis.post_order_visit(function.body, visit)
    assert ("epu.QLinearConv", "qnn.conv2d_nn.bias_add_qnn.requantize") in found
    assert ("epu.QLinearGlobalAveragePool", "qnn.dequantize_nn.global_avg_pool2d_qnn.quantize") in found


def test_what_the_epu_lacks_stays_on_the_host_with_reason_and_remedy() -> None:
    module = partition_for_epu(import_onnx(mixed()[0])[0])
    assert len(epu_functions(module)) == 2
    rows = by_node(placement(module))
    assert {name: row.where for name, row in rows.items()} == {
        "q1": "EPU",
        "add": "EPU",
        "d1": "EPU",
        "powers": "host",
        "q2": "EPU",
        "d2": "EPU",
    }
    assert rows["powers"].op == "power"
    assert "'powers'" in rows["powers"].reason
    assert "exponent" in rows["powers"].reason
    assert rows["powers"].remedy
    assert by_node(placement(import_onnx(mixed()[0])[0])) == rows


def test_parts_compute_the_whole(spy: Spy) -> None:
    model, inputs = mixed()
    (found,) = built_outputs(import_onnx(model)[0], inputs, "epu")
    np.testing.assert_allclose(found, ort_outputs(model, inputs)[0], rtol=0, atol=1e-6)
    assert spy.runs == 2


def test_excluded_nodes_stay_on_the_host(spy: Spy) -> None:
    model, inputs = mixed()
    module = import_onnx(model)[0]
    rows = by_node(placement(module, exclude=["add"]))
    assert (rows["add"].where, rows["add"].reason) == ("host", "ONNX node 'add': excluded by the user")
    with epu.config(exclude=["add", "q1"]):
        (found,) = built_outputs(module, inputs, "epu")
    assert "add" not in {node.name for graph in spy.graphs for node in graph.nodes}
    np.testing.assert_allclose(found, ort_outputs(model, inputs)[0], atol=0.31)


def test_a_float_tensor_of_the_host_needs_a_quantize() -> None:
    grow = Builder()
    x = grow.node("Relu", ["x"], "relu")
    x = grow.node("QuantizeLinear", [x, *q(0.1)], "quantize")
    module = import_onnx(grow.model({"x": normal(4)}, [x]))[0]
    assert by_node(placement(module))["relu"].where == "EPU"
    rows = by_node(placement(module, calibrated=False))
    assert rows["relu"].where == "host"
    assert "QuantizeLinear alone, which gives its range, found 'x'" in rows["relu"].reason
    assert by_node(placement(partition_for_epu(module))) == rows


def test_shared_dequantize_serves_folded_and_float_readers() -> None:
    grow = Builder()
    x = grow.node("QuantizeLinear", ["x", *q(0.1)], "qx")
    d = grow.node("DequantizeLinear", [x, *q(0.1)], "dx")
    y = grow.node("QuantizeLinear", [grow.node("Add", [d, d], "double"), *q(0.2)], "qy")
    s = grow.node("Softmax", [d], "softmax")
    model = grow.model({"x": normal(2, 6)}, [y, s])
    module, _, names = import_onnx(model)
    graph = to_graph(module, "model", names)
    assert [(node.name, node.op) for node in graph.nodes] == [
        ("qx", "QuantizeLinear"),
        ("dx", "DequantizeLinear"),
        ("qy", "QLinearAdd"),
        ("softmax", "Softmax"),
    ]
    assert [name for name, _, _ in graph.nodes[2].covers] == ["double", "qy"]
    assert len(epu_functions(partition_for_epu(module))) == 1


def test_control_flow_stays_on_the_host() -> None:
    x, flag = relay.var("x", shape=(2,)), relay.var("flag", shape=(), dtype="bool")
    module = relay.transform.InferType()(
        relay.frontend.common.IRModule.from_expr(relay.Function([x, flag], relay.If(flag, x, relay.nn.relu(x))))
    )
    assert not is_partitioned(partition_for_epu(module))
    (row,) = placement(module)
    assert (row.where, row.remedy) == ("host", "Convert the function to graph normal form.")


def test_a_partitioned_module_is_left_alone() -> None:
    module = partition_for_epu(import_onnx(mixed()[0])[0])
    assert partition_for_epu(module) is module


def test_hand_written_qnn(spy: Spy) -> None:
    """A pipeline nobody named: quantize, dense with bias, requantize, dequantize."""
    x = relay.var("x", shape=(3, 8))
    one, zero = relay.const(0.5), relay.const(0)
    weight, bias = codes(4, 8), np.arange(4, dtype=np.int32)
    body = relay.qnn.op.quantize(x, one, zero)
    body = relay.qnn.op.dense(body, relay.const(weight), zero, zero, one, one, units=4)
    body = relay.nn.bias_add(body, relay.const(bias))
    body = relay.qnn.op.requantize(body, relay.const(0.25), zero, relay.const(64.0), zero)
    body = relay.qnn.op.dequantize(body, relay.const(64.0), zero)
    module = relay.frontend.common.IRModule.from_expr(relay.Function([x], body))
    sample = normal(3, 8, scale=10)
    (found,) = built_outputs(module, {"x": sample}, "epu")
    q8 = np.clip(np.rint(sample / np.float32(0.5)), -128, 127).astype(np.int64)
    exact = (q8 @ weight.T.astype(np.int64) + bias) / 256
    np.testing.assert_array_equal(found, np.clip(np.rint(exact), -128, 127) * 64)
    assert [node.op for node in spy.graphs[0].nodes] == ["QuantizeLinear", "QGemm", "DequantizeLinear"]


FROM_ONNX = {
    "frozen": lambda model: relay.frontend.from_onnx(model),
    "with parameters": lambda model: relay.frontend.from_onnx(model, freeze_params=False),
}


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
@pytest.mark.parametrize("door", FROM_ONNX)
def test_modules_of_from_onnx(tmp_path: Path, spy: Spy, form: QuantFormat, door: str) -> None:
    model = quantised(tmp_path, form, per_channel=True)
    module, params = FROM_ONNX[door](model)
    inputs = {"x": normal(1, 3, 4, 4, seed=9)}
    (found,) = built_outputs(module, inputs, "epu", params=params)
    assert spy.runs == 1
    np.testing.assert_allclose(found, ort_outputs(model, inputs)[0], rtol=0, atol=1e-6)


def test_an_int8_tensor_of_the_host_is_read_with_its_scale(spy: Spy) -> None:
    """Token embeddings: the lookup is the host's, the sum after it the EPU's."""
    grow = Builder()
    x = grow.node("Gather", [codes(9, 6), "x"], "lookup", axis=0)
    out = grow.node("QLinearAdd", [x, *q(0.0503), codes(6), *q(0.0207), *q(0.0611)], "add", "com.microsoft")
    inputs = {"x": np.array([[3, 0, 8]])}
    model = grow.model(inputs, [out])
    module = import_onnx(model)[0]
    assert {row.node: row.where for row in placement(module)} == {"lookup": "host", "add": "EPU"}
    np.testing.assert_array_equal(built_outputs(module, inputs, "epu")[0], ort_outputs(model, inputs)[0])
    assert spy.runs == 1


def test_calls_written_by_hand_are_named_by_their_operator() -> None:
    x = relay.var("x", shape=(2, 3), dtype="int8")
    module = tvm.IRModule.from_expr(relay.Function([x], relay.bitwise_xor(relay.abs(x), x)))
    rows = placement(relay.transform.InferType()(module))
    assert [(row.node, row.reason) for row in rows] == [
        ("op_0", "Relay call abs: the input must be float32, found int8"),
        ("op_1", "Relay call bitwise_xor: no row of the operator table takes it"),
    ]
