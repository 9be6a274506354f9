"""Reports, taps and traces change neither values nor cycles, nor the program's bytes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from recorded_runs import Case

from epu import plots
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.raw_tensors import load_arrays
from epu.report_html import report_html
from epu.simulator.simulation import RunResult, Simulator
from epu.simulator.taps import TapRecorder
from epu.simulator.timeline import clock_of, timeline
from epu.trace import trace_of


def same(a: RunResult, b: RunResult) -> None:
    assert (a.cycles, a.kernels) == (b.cycles, b.kernels)
    assert (a.ext_read_bytes, a.ext_write_bytes, a.peak_ocm, a.peak_lrm) == (
        b.ext_read_bytes,
        b.ext_write_bytes,
        b.peak_ocm,
        b.peak_lrm,
    )
    assert a.outputs.keys() == b.outputs.keys()
    for name in a.outputs:
        np.testing.assert_array_equal(a.outputs[name], b.outputs[name])


@pytest.mark.parametrize("strict", [True, False])
def test_taps_change_nothing(case: Case, strict: bool) -> None:
    program = case.job.program
    raw = case.job.chain.raw_inputs(load_arrays(case.inputs))
    plain = Simulator(program, strict=strict).run(raw)
    recorder = TapRecorder(program)
    watched = Simulator(program, strict=strict)
    same(plain, watched.run(raw, (recorder,)))
    same(plain, watched.run(raw))
    assert set(recorder.tensors) >= {tap.tensor for tap in program.debug.taps}


def test_records_reports_and_traces_change_nothing(case: Case, tmp_path: Path) -> None:
    job = ChimeraJob(case.model, HWConfig("QC-N"), case.job.trange_file, run_directory=tmp_path)
    job.compile()
    before = job.program.to_bytes()
    raw = job.chain.raw_inputs(load_arrays(case.inputs))
    plain = Simulator(job.program).run(raw)
    record = job.record()
    report_html(record), trace_of(record), plots.ocm_map(record), job._repr_html_()
    timeline(job.program, clock_of(job.program))
    job.run(case.inputs)
    assert job.run_result is not None
    same(plain, job.run_result)
    assert job.program.to_bytes() == before == case.job.program.to_bytes()


def test_a_record_made_twice_is_the_same(case: Case) -> None:
    assert json.dumps(case.job.record()) == json.dumps(case.job.record())
