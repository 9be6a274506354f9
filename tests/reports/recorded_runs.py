"""Small jobs that have run, and the records that they left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.run_record import load_record

SMALL = {"d_model": 32, "sequence": 24}
SOFTMAX = "/encoder/layers.0/self_attn/Softmax"


@dataclass(frozen=True)
class Case:
    """A validated job, its input file and the record in its run directory."""

    job: ChimeraJob
    model: Path
    inputs: Path
    folder: Path
    record: dict[str, Any]


def validated(files: tuple[Path, Path, Path], folder: Path, **options: Any) -> Case:
    model, tranges, inputs = files
    job = ChimeraJob(model, HWConfig("QC-N"), tranges, run_directory=folder, **options)
    job.compile()
    job.validate_ort_iss(inputs)
    return Case(job, model, inputs, folder, load_record(folder))
