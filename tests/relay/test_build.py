"""relay.build for target "epu": every entry point, options, export, errors."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from relay_models import Builder, normal, qlinear_network
from relay_running import HOST, built_outputs, executor_outputs, ort_outputs
from spy import Spy, install
from tvm import relay
from tvm.relay import build as early_alias

import epu
import epu.compiler
from epu.errors import UnsupportedNode, UserError
from epu.hw_config import HWConfig
from epu.relay_passes.import_onnx import import_onnx
from epu.relay_passes.partition import epu_functions, is_partitioned, partition_for_epu


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return install(monkeypatch)


MODEL, INPUTS = qlinear_network()
MODULE = import_onnx(MODEL)[0]
(EXPECTED,) = ort_outputs(MODEL, INPUTS)


def assert_equal(found: Any) -> None:
    np.testing.assert_array_equal(found, EXPECTED)


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
def test_entry_point_compiles_for_the_epu(entry: str, spy: Spy) -> None:
    (found,) = ENTRY_POINTS[entry](MODULE)
    assert spy.runs == 1
    names = [node.name for node in spy.graphs[0].nodes]
    assert entry == "virtual machine" or names == [node.name for node in MODEL.graph.node]  # its passes drop spans
    assert_equal(found)


def test_host_target_does_not_partition(spy: Spy) -> None:
    built_outputs(MODULE, INPUTS, HOST)
    assert not spy.graphs


def test_build_leaves_the_users_module_alone(spy: Spy) -> None:
    before = tvm.ir.structural_hash(MODULE)
    relay.build(MODULE, target="epu")
    assert tvm.ir.structural_hash(MODULE) == before
    assert not is_partitioned(MODULE)


def test_params_are_bound(spy: Spy) -> None:
    module, params = relay.frontend.from_onnx(MODEL, freeze_params=False)
    (found,) = built_outputs(module, INPUTS, "epu", params=params)
    assert_equal(found)
    assert spy.runs == 1


def test_optimize_partitions(spy: Spy) -> None:
    optimized, _ = relay.optimize(MODULE, target="epu")
    assert 'Compiler="epu"' in optimized.astext(show_meta_data=False)


def test_config_chooses_machine_and_rounding(spy: Spy) -> None:
    with epu.config(HWConfig(product="QC-N"), rounding="ort"):
        relay.build(MODULE, target="epu")
    relay.build(MODULE, target="epu")
    assert spy.options == [("QC-N", "ort"), ("QC-U", "exact")]


def test_export_and_load(spy: Spy, tmp_path: Path) -> None:
    path = tmp_path / "network.so"
    relay.build(MODULE, target="epu").export_library(str(path))
    (found,) = executor_outputs(tvm.runtime.load_module(str(path)), INPUTS)
    assert_equal(found)


def test_threads_do_not_share_a_run() -> None:
    library, found = relay.build(MODULE, target="epu"), []

    def runs() -> None:
        found.extend(executor_outputs(library, INPUTS)[0] for _ in range(4))

    threads = [threading.Thread(target=runs) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 12
    for output in found:
        assert_equal(output)


LOADING = """
import sys, epu, tvm, numpy as np
from tvm.contrib import graph_executor
library, sample, result = sys.argv[1:]
executor = graph_executor.GraphModule(tvm.runtime.load_module(library)["default"](tvm.cpu()))
executor.set_input("x", np.load(sample))
executor.run()
np.save(result, executor.get_output(0).numpy())
assert "tvm.relay" not in sys.modules
"""


def test_a_new_process_runs_the_exported_library(tmp_path: Path) -> None:
    library, sample, result = (str(tmp_path / name) for name in ("network.so", "x.npy", "y.npy"))
    relay.build(MODULE, target="epu").export_library(library)
    np.save(sample, INPUTS["x"])
    subprocess.run([sys.executable, "-c", LOADING, library, sample, result], check=True)
    assert_equal(np.load(result))


def test_two_models_with_equal_symbols_keep_their_programs(spy: Spy) -> None:
    grow = Builder()
    other = grow.model({"x": normal(1, 3)}, [grow.node("QuantizeLinear", ["x", np.float32(0.5), np.int8(0)])])
    first, second = (relay.build(import_onnx(model)[0], target="epu") for model in (MODEL, other))
    assert executor_outputs(second, {"x": normal(1, 3)})[0].shape == (1, 3)
    assert_equal(executor_outputs(first, INPUTS)[0])


def test_an_error_of_the_simulator_reaches_the_user(spy: Spy) -> None:
    library = relay.build(MODULE, target="epu")
    spy.fault = UserError("the machine stopped at pc 7")
    with pytest.raises(UserError, match="the machine stopped at pc 7"):
        executor_outputs(library, INPUTS)
    assert not hasattr(relay.Span(relay.SourceName("TVM's own errors keep their text"), 0, 0, 0, 0), "spans")


def test_an_error_of_the_compiler_reaches_the_user(spy: Spy, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise UnsupportedNode("ONNX node 'conv': too large, found 9. Split it.")

    monkeypatch.setattr(epu.compiler, "compile_graph", refuse)
    with pytest.raises(UnsupportedNode, match="ONNX node 'conv': too large"):
        relay.build(MODULE, target="epu")


def test_host_nodes_between_epu_nodes(spy: Spy) -> None:
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
    assert spy.runs == 2


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
