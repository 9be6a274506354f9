"""relay.build for target "epu": every entry point, options, export, errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from fake_compiler import FakeCompiler, install
from relay_models import Builder, normal, qlinear_network
from relay_running import HOST, built_outputs, executor_outputs, ort_outputs
from tvm import relay
from tvm.relay import build as early_alias

import epu
from epu.errors import UnsupportedNode, UserError
from epu.hw_config import HWConfig
from epu.relay_passes.import_onnx import import_onnx
from epu.relay_passes.partition import epu_functions, is_partitioned, partition_for_epu


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
    return install(monkeypatch)


MODEL, INPUTS = qlinear_network()
MODULE = import_onnx(MODEL)[0]
(EXPECTED,) = ort_outputs(MODEL, INPUTS)


def assert_close(found: Any) -> None:
    """Equal int8 codes; the stand-in keeps floats with 16 fraction bits."""
    np.testing.assert_allclose(found, EXPECTED, rtol=0, atol=2**-16)


def virtual_machine(module: Any) -> list[Any]:
    executable = relay.vm.compile(module, target="epu")
    return [tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).run(INPUTS["x"]).numpy()]


def within_target(module: Any) -> list[Any]:
    with tvm.target.Target("epu"):
        return executor_outputs(relay.build(module), INPUTS)


def create_executor(module: Any) -> list[Any]:
    run = relay.create_executor("graph", mod=module, device=tvm.cpu(), target="epu").evaluate()
    return [run(INPUTS["x"]).numpy()]


ENTRY_POINTS: dict[str, Callable[[Any], list[Any]]] = {
    "text": lambda module: built_outputs(module, INPUTS, "epu"),
    "target": lambda module: built_outputs(module, INPUTS, tvm.target.Target("epu")),
    "dict": lambda module: built_outputs(module, INPUTS, {"cpu": "epu"}),
    "list": lambda module: built_outputs(module, INPUTS, ["epu"]),
    "within target": within_target,
    "early alias": lambda module: executor_outputs(early_alias(module, target="epu"), INPUTS),
    "partitioned": lambda module: built_outputs(partition_for_epu(module), INPUTS, "epu"),
    "partitioned, host target": lambda module: built_outputs(partition_for_epu(module), INPUTS, HOST),
    "virtual machine": virtual_machine,
    "create_executor": create_executor,
}


@pytest.mark.parametrize("entry", ENTRY_POINTS)
def test_entry_point_compiles_for_the_epu(entry: str, fake: FakeCompiler) -> None:
    (found,) = ENTRY_POINTS[entry](MODULE)
    assert fake.runs == 1
    names = [node.name for node in fake.graphs[0].nodes]
    assert entry == "virtual machine" or names == [node.name for node in MODEL.graph.node]  # its passes drop spans
    assert_close(found)


def test_host_target_does_not_partition(fake: FakeCompiler) -> None:
    built_outputs(MODULE, INPUTS, HOST)
    assert not fake.graphs


def test_build_leaves_the_users_module_alone(fake: FakeCompiler) -> None:
    before = tvm.ir.structural_hash(MODULE)
    relay.build(MODULE, target="epu")
    assert tvm.ir.structural_hash(MODULE) == before
    assert not is_partitioned(MODULE)


def test_params_are_bound(fake: FakeCompiler) -> None:
    module, params = relay.frontend.from_onnx(MODEL, freeze_params=False)
    (found,) = built_outputs(module, INPUTS, "epu", params=params)
    assert_close(found)
    assert fake.runs == 1


def test_optimize_partitions(fake: FakeCompiler) -> None:
    optimized, _ = relay.optimize(MODULE, target="epu")
    assert 'Compiler="epu"' in optimized.astext(show_meta_data=False)


def test_config_chooses_machine_and_rounding(fake: FakeCompiler) -> None:
    with epu.config(HWConfig(product="QC-N"), rounding="ort"):
        relay.build(MODULE, target="epu")
    relay.build(MODULE, target="epu")
    assert [(each.machine.product, each.rounding) for each in fake.programs] == [("QC-N", "ort"), ("QC-U", "exact")]


def test_export_and_load(fake: FakeCompiler, tmp_path: Path) -> None:
    path = tmp_path / "network.so"
    relay.build(MODULE, target="epu").export_library(str(path))
    (found,) = executor_outputs(tvm.runtime.load_module(str(path)), INPUTS)
    assert_close(found)


def test_two_models_with_equal_symbols_keep_their_programs(fake: FakeCompiler) -> None:
    grow = Builder()
    other = grow.model({"x": normal(1, 3)}, [grow.node("QuantizeLinear", ["x", np.float32(0.5), np.int8(0)])])
    first, second = (relay.build(import_onnx(model)[0], target="epu") for model in (MODEL, other))
    assert executor_outputs(second, {"x": normal(1, 3)})[0].shape == (1, 3)
    assert_close(executor_outputs(first, INPUTS)[0])


def test_an_error_of_the_simulator_reaches_the_user(fake: FakeCompiler) -> None:
    library = relay.build(MODULE, target="epu")
    fake.fault = UserError("the machine stopped at pc 7")
    with pytest.raises(UserError, match="the machine stopped at pc 7"):
        executor_outputs(library, INPUTS)
    assert not hasattr(relay.Span(relay.SourceName("TVM's own errors keep their text"), 0, 0, 0, 0), "spans")


def test_an_error_of_the_compiler_reaches_the_user(fake: FakeCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise UnsupportedNode("ONNX node 'conv': too large, found 9. Split it.")

    monkeypatch.setattr(sys.modules["epu.compiler"], "compile_graph", refuse)
    with pytest.raises(UnsupportedNode, match="ONNX node 'conv': too large"):
        relay.build(MODULE, target="epu")


def test_host_nodes_between_epu_nodes(fake: FakeCompiler) -> None:
    grow = Builder()
    x = grow.node("QuantizeLinear", ["x", np.float32(0.05), np.int8(0)], "q")
    x = grow.node("DequantizeLinear", [x, np.float32(0.05), np.int8(0)], "d")
    x = grow.node("Cast", [x], "to_int", to=6)
    x = grow.node("Cast", [x], "to_float", to=1)
    out = grow.node("QuantizeLinear", [x, np.float32(0.5), np.int8(0)], "q2")
    inputs = {"x": normal(3, 7, scale=3)}
    model = grow.model(inputs, [out])
    module = partition_for_epu(import_onnx(model)[0])
    assert len(epu_functions(module)) == 2
    np.testing.assert_array_equal(built_outputs(module, inputs, "epu")[0], ort_outputs(model, inputs)[0])
    assert fake.runs == 2


IMPORT_ORDERS = (
    "import epu, tvm",
    "import tvm\nfrom tvm import relay\nimport epu",
    "import epu.relay_passes.import_onnx, tvm",
    "import epu.relay_passes.codegen, epu.relay_passes.runtime, tvm",
)
CHECK = """
from tvm import relay
assert tvm.target.Target("epu").keys[0] == "epu"
assert tvm.get_global_func("relay.ext.epu") and tvm.get_global_func("epu.runtime.run")
assert hasattr(relay.build_module.BuildModule.build, "_epu_hook")
assert hasattr(relay.frontend.from_onnx, "_epu_hook")
"""


@pytest.mark.parametrize("imports", IMPORT_ORDERS)
def test_target_is_registered_in_any_order_of_import(imports: str) -> None:
    subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", imports + CHECK], check=True)


def test_a_process_that_only_runs_needs_no_relay() -> None:
    script = """
import epu, tvm, sys
from tvm.contrib import graph_executor
assert tvm.get_global_func("epu.runtime.run")
assert hasattr(graph_executor.GraphModule.run, "_epu_hook")
assert "tvm.relay" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
