"""MiniLM-L3, a sentence model with word ids and an attention mask, quantised both ways: host nodes, gates, answers."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from benchmarks.decode_outputs import cosine
from benchmarks.real_cases import CALIBRATION, FORMS, HELD_OUT, MODELS
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.job_placement import MAC_OPS
from epu.ort_reference import plain_session
from epu.quantize import quadric_quantize
from epu.raw_tensors import Arrays

pytest.importorskip("tvm", reason="the Relay door needs TVM")

SOURCE = MODELS / "minilm_l3.onnx"
SENTENCES = 8
ANSWERS = ("461", "onnx::Shape_422")  # vectors of the sentence and of its words
LEAST_COSINE = 0.9999
ON_HOST = {"Cast", "Expand", "Gather", "Identity", "Unsqueeze"}  # of the ids and of the int64 mask
CONSTANT = {"DequantizeLinear"}  # the embedding's weights, which the host reads


@pytest.fixture(scope="module", params=FORMS)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ChimeraJob:
    if not SOURCE.exists():
        pytest.skip(f"{SOURCE} is absent: put the shared models beside the repository to run this test")
    folder = tmp_path_factory.mktemp(request.param)
    files = quadric_quantize(
        SOURCE,
        calibration_data=[sentence(number) for number in CALIBRATION],
        output_folder=folder,
        shapes={name: array.shape for name, array in sentence(0).items()},
        format=request.param,
        per_channel=FORMS[request.param],
    )
    made = ChimeraJob(files.qmodel_path, HWConfig("QC-U"), files.tranges_path, run_directory=folder / "run")
    made.compile()
    return made


@cache
def sentence(number: int) -> Arrays:
    with np.load(MODELS / "minilm_l3.inputs.npz") as stored:
        return {key.split("/", 1)[1]: stored[key] for key in stored.files if key.startswith(f"{number}/")}


@pytest.mark.slow
def test_ids_and_mask_are_prepared_on_the_host_and_all_else_is_one_program(job: ChimeraJob) -> None:
    assert len(job.programs) == 1
    assert {row["op"] for row in job.host_nodes} - CONSTANT == ON_HOST
    assert not MAC_OPS & {row["op"] for row in job.host_nodes}


@pytest.mark.slow
@pytest.mark.parametrize("number", HELD_OUT)
def test_gates(job: ChimeraJob, number: int) -> None:
    result = job.validate_ort_iss(sentence(number))
    assert result.passed, result.failures
    assert result.summary["skipped"] == 0
    assert result.summary["iss_equals_golden"]


@pytest.mark.slow
def test_vectors_of_all_sentences_point_where_ort_has_them(job: ChimeraJob) -> None:
    session = plain_session(job.onnx_file)
    names = [each.name for each in session.get_outputs()]
    for number in range(SENTENCES):
        outputs = job.run(sentence(number))
        ort = dict(zip(names, session.run(None, sentence(number)), strict=True))
        for name in ANSWERS:
            assert cosine(outputs[name], ort[name]) >= LEAST_COSINE, (number, name)
