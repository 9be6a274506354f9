"""Compiles a model and asks ONNX Runtime, the golden kernels, the ISS and the operators' references for their answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from form_models import Model

from epu.compiler import compile_graph
from epu.front_end import import_model, to_typed_graph
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.onnx_load import load_model
from epu.quantize import compute_tensor_ranges
from epu.raw_tensors import encode
from epu.reference import run_reference
from epu.simulator.simulation import simulate


def check(made: Model, folder: Path, rounding: str = "exact") -> list[str]:
    """Operators of the compiled graph. Fails unless every node output is seen and within its gate (with "ort": no code of a
    QLinear operator differs from ONNX Runtime's), and ISS, golden and references agree bit for bit."""
    job, (_, feeds) = compiled(made, folder, rounding), made
    result = job.validate_ort_iss(feeds)
    assert result.passed, result.failures
    assert result.summary["skipped"] == 0
    assert result.summary["iss_equals_golden"]
    raw = encode(job.program.inputs, feeds)
    references = run_reference(job.graph, raw, rounding)
    for name, found in job.compiled.golden(raw).items():
        if name in references:
            np.testing.assert_array_equal(found, references[name], err_msg=name)
    return [node.op for node in job.graph.nodes]


def judged_by_references(made: Model, rounding: str) -> None:
    """ISS, golden and references alone, for what ONNX Runtime has no kernel for."""
    graph = to_typed_graph(import_model(load_model(made[0])), None, "form")
    compiled = compile_graph(graph, HWConfig("QC-N").machine, rounding=rounding, name="form")
    raw = encode(compiled.program.inputs, made[1])
    golden, references = compiled.golden(raw), run_reference(compiled.graph, raw, rounding)
    found = simulate(compiled.program, raw).outputs
    for name in compiled.graph.outputs:
        np.testing.assert_array_equal(found[name], golden[name])
        np.testing.assert_array_equal(found[name], references[name])
        assert np.unique(found[name]).size > 20


def compiled(made: Model, folder: Path, rounding: str = "exact") -> ChimeraJob:
    model, feeds = made
    path = folder / "model.onnx"
    onnx.save(model, path)
    samples = [{name: drawn(data, seed) for name, data in feeds.items()} for seed in (1, 2)]
    compute_tensor_ranges(path, folder / "model.tranges", [feeds, *samples])
    job = ChimeraJob(path, HWConfig("QC-N"), folder / "model.tranges", rounding=rounding, run_directory=folder / "run")
    job.compile()
    return job


def drawn(like: np.ndarray, seed: int) -> np.ndarray:  # type: ignore[type-arg]
    random = np.random.default_rng(seed)
    if like.dtype.kind in "iu":
        limits = np.iinfo(like.dtype)
        return random.integers(limits.min, limits.max, like.shape, endpoint=True).astype(like.dtype)
    return random.standard_normal(like.shape).astype(like.dtype)
