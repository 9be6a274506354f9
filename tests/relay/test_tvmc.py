"""TVM's command line: compile for the EPU, run, and compare with ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tvm.contrib import graph_executor

from epu.errors import ConfigError
from epu.relay_passes import tvmc
from tests.relay.relay_running import ort_outputs

TVMC = Path(sys.executable).with_name("tvmc")
SHAPE = (1, 4, 8, 8)


def quantised_relu() -> onnx.ModelProto:
    """Quantise → 3 × 3 convolution of codes → dequantise."""
    weights = np.random.default_rng(0).integers(-9, 10, (4, 4, 3, 3)).astype(np.int8)
    values = {"s": np.float32(0.05), "z": np.int8(0), "w": weights, "sw": np.float32(0.02)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantise"),
        helper.make_node("QLinearConv", ["q", "s", "z", "w", "sw", "z", "s", "z"], ["y"], name="conv", pads=[1] * 4),
        helper.make_node("DequantizeLinear", ["y", "s", "z"], ["out"], name="dequantise"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "out")]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "tiny", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def run_tvmc(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(TVMC), *arguments], cwd=cwd, check=False, capture_output=True, text=True)


def package_output(package: Path, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Load what tvmc exported. (``tvmc run`` of hhb-tvm 3.2.3 fails on any local package.)"""
    with tarfile.open(package) as archive:
        archive.extractall(package.parent)
    library = tvm.runtime.load_module(str(package.with_name("mod.so")))
    executor = graph_executor.create(package.with_name("mod.json").read_text(), library, tvm.cpu())
    executor.load_params(package.with_name("mod.params").read_bytes())
    executor.set_input("x", x)
    executor.run()
    output: NDArray[np.float32] = executor.get_output(0).numpy()
    return output


@pytest.mark.skipif(not TVMC.is_file(), reason="the installed TVM has no tvmc")
def test_compiles_and_runs_a_model(tmp_path: Path) -> None:
    assert list(Path(np.__file__).parents[1].glob("epu_tvmc.pth")), "copy python/epu_tvmc.pth into site-packages"
    model = quantised_relu()
    onnx.save(model, tmp_path / "tiny.onnx")
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    target = "--target=epu -product=QC-N -rounding=ort"
    built = run_tvmc("compile", target, "tiny.onnx", "-o", "tiny.tar", "--dump-code", "relay", cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    assert 'Compiler="epu"' in (tmp_path / "tiny.tar.relay").read_text()
    np.testing.assert_array_equal(package_output(tmp_path / "tiny.tar", x), ort_outputs(model, {"x": x})[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [({"foo": "1"}, "options are product.*found 'foo'"), ({"product": "QC-X"}, "found 'QC-X'")],
)
def test_wrong_options_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tvmc._build_options(options)


def test_numbers_and_text_of_the_target_reach_the_hardware() -> None:
    options = {"product": "QC-N", "macs_per_pe": "16", "clock_freq_ghz": "0.75", "ocm_size": "2MB", "exclude": "a;b"}
    hardware, rounding, exclude = tvmc._build_options(options)
    assert (hardware.product, hardware.macs_per_pe, hardware.clock_freq_ghz) == ("QC-N", 16, 0.75)
    assert (hardware.machine.ocm_bytes, rounding, exclude) == (2 << 20, "exact", ("a", "b"))
