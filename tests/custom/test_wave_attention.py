"""waveAttention: a model with the custom operator gives the same bits as the native one, in every tensor that both have."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from small_attention import sample, small_attention

from epu.cli.group import epu
from epu.custom_bodies import open_bodies
from epu.custom_match import replace_subgraphs
from epu.errors import UserError
from epu.graph import TensorType
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.models import wave_attention, waveformer_int8_file, waveformer_windows
from epu.observed import TensorMap
from epu.onnx_load import load_model, save_model
from epu.ort_reference import OrtReference
from epu.ranges import save_ranges
from epu.raw_tensors import encode
from epu.simulator.simulation import simulate
from epu.simulator.taps import TapRecorder

Raw = dict[str, NDArray[Any]]
MODULE = "epu.models.wave_attention"


def tensors_of(job: ChimeraJob, inputs: Raw) -> dict[str, tuple[TensorType, NDArray[Any]]]:
    """Every tensor that the run shows, the outputs among them: its type and raw integers."""
    recorder = TapRecorder(job.program)
    result = simulate(job.program, encode(job.program.inputs, inputs), listeners=(recorder,))
    types = TensorMap(job.chain.model, job.compiled)
    return {name: (types.type_of(name), raw) for name, raw in {**recorder.tensors, **result.outputs}.items()}


def assert_same_bits(one: ChimeraJob, other: ChimeraJob, inputs: Raw, least: int) -> None:
    """In every tensor that both hold in the same format, ``least`` of them or more, the outputs among them."""
    first, second = tensors_of(one, inputs), tensors_of(other, inputs)
    shared = {name for name in first.keys() & second.keys() if first[name][0] == second[name][0]}
    assert len(shared) >= least
    assert set(one.graph.outputs) <= shared
    assert [
        name for name in sorted(shared) if not np.array_equal(first[name][1].ravel(), second[name][1].ravel())
    ] == []


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The small block: native, custom, and the ranges of the native one."""
    folder = tmp_path_factory.mktemp("attention")
    native = small_attention()
    paths = {name: folder / f"{name}.onnx" for name in ("native", "custom")} | {"ranges": folder / "attention.tranges"}
    save_model(native, paths["native"])
    save_model(replace_subgraphs(native, "waveAttention", ["qkv"], "merged"), paths["custom"])
    values = OrtReference(native).run({"x": sample()})
    reals = {name: value for name, value in values.items() if value.dtype == np.float32}
    save_ranges({name: (float(v.min()), float(v.max())) for name, v in reals.items()}, paths["ranges"])
    return paths


def compiled(files: dict[str, Path], name: str, folder: Path, **settings: Any) -> ChimeraJob:
    hw = HWConfig(product="QC-N")
    job = ChimeraJob(files[name], hw, files["ranges"], run_directory=folder, **settings)
    job.compile()
    return job


@pytest.mark.parametrize("custom_ops", [wave_attention, MODULE, Path(wave_attention.__file__)])
@pytest.mark.parametrize("rounding", ["exact", "ort"])
def test_the_small_block_has_the_same_bits(
    files: dict[str, Path], tmp_path: Path, custom_ops: ModuleType | str | Path, rounding: str
) -> None:
    native = compiled(files, "native", tmp_path, rounding=rounding)
    custom = compiled(files, "custom", tmp_path, rounding=rounding, custom_ops=custom_ops)
    assert_same_bits(native, custom, {"x": sample()}, least=30)


def test_validation_compares_the_node_with_its_body(files: dict[str, Path], tmp_path: Path) -> None:
    job = compiled(files, "custom", tmp_path, custom_ops=MODULE, validate_iss=True)
    result = job.validate_ort_iss({"x": sample()})
    assert result.passed
    names = [row["Name"] for row in result if row["mode"] == "isolated"]
    within = [name for name in names if name.startswith("CustomOp/waveAttention0:")]
    assert len(within) > 25  # of 44: what the composition makes too is compared
    assert {"CustomOp/waveAttention0:0", "CustomOp/waveAttention0:MatMul:0"} <= set(within)


def test_the_body_in_place_is_the_native_model(files: dict[str, Path]) -> None:
    opened, inner = open_bodies(load_model(files["custom"]))
    made = [name for node in opened.graph.node for name in node.output]
    assert made == [name for node in small_attention().graph.node for name in node.output]
    assert len(inner) == 43
    feeds = {"x": sample()}
    one, other = OrtReference(opened).run(feeds), OrtReference(small_attention()).run(feeds)
    assert all(np.array_equal(one[name], other[name]) for name in other)


def test_the_report_names_the_module(files: dict[str, Path], tmp_path: Path) -> None:
    assert f"Custom Ops          │ {MODULE}" in str(compiled(files, "custom", tmp_path, custom_ops=MODULE))
    assert "Custom Ops" not in str(compiled(files, "native", tmp_path))


def test_without_the_module_the_node_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="found 'waveAttention'. None is registered. Pass its module"):
        compiled(files, "custom", tmp_path)


def test_the_command_line(files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    common = [str(files["custom"]), "--tranges", str(files["ranges"]), "--product", "QC-N"]
    given = ["--custom-ops", wave_attention.__file__]
    made = CliRunner().invoke(epu, ["compile", *common, *given, "-o", "out"])
    assert made.exit_code == 0, made.output
    assert "wave_attention.py" in made.output
    checked = CliRunner().invoke(epu, ["validate", *common, *given])
    assert checked.exit_code == 0, checked.output
    missing = CliRunner().invoke(epu, ["compile", *common, "--custom-ops", "none.py", "-o", "out"])
    assert missing.exit_code != 0
    assert "custom_ops 'none.py' does not exist" in missing.output


@pytest.mark.slow
def test_waveformer_has_the_same_bits(tmp_path: Path) -> None:
    """Six blocks on QC-N: every tensor of the run, the logits among them."""
    source = waveformer_int8_file()
    paths = {"native": source, "custom": tmp_path / "custom.onnx", "ranges": Path(f"{source}.tranges")}
    model = wave_attention.prepare_custom_ops_graph(source)
    save_model(model, paths["custom"])
    assert sum(node.op_type.startswith("QuadricCustomOp") for node in model.graph.node) == 6
    windows, _ = waveformer_windows("test", 1)
    window = {"input": windows.astype(np.float32).reshape(1, 1, 8, 1000)}
    native = compiled(paths, "native", tmp_path)
    custom = compiled(paths, "custom", tmp_path, custom_ops=MODULE)
    assert_same_bits(native, custom, window, least=300)
