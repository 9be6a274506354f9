"""WaveFormer int8 on QC-N against ONNX Runtime: top-1, margins and logits of test windows, accuracy over more of them.

ONNX Runtime runs the same int8 model without graph optimisation. Errors and margins count in LSBs of the logits.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from epu.files import write_bytes
from epu.graph import Quantized
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.models import waveformer, waveformer_int8_file, waveformer_windows
from epu.quantization.session import open_session
from epu.raw_tensors import decode, encode
from epu.reports import grid, to_json
from epu.simulator.simulation import Simulator

PRODUCT = "QC-N"
LEAST_MARGIN = 8  # LSBs between first and second above which top-1 must be ORT's
ROUNDINGS = ("exact", "ort")

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Iss:
    """The compiled model, ready for one window after the other."""

    job: ChimeraJob
    simulator: Simulator
    lsb: float

    def logits(self, windows: NDArray[np.float32]) -> Logits:
        """[windows, classes]."""
        program = self.job.program
        raw = [self.simulator.run(encode(program.inputs, {"input": window[None]})).outputs for window in windows]
        return np.concatenate([decode(program.outputs, each)["logits"] for each in raw])


def compiled(rounding: str, run_directory: Path) -> Iss:
    model = waveformer_int8_file()
    job = ChimeraJob(model, HWConfig(PRODUCT), f"{model}.tranges", rounding=rounding, run_directory=run_directory)
    job.compile()
    kinds = [
        job.graph.tensors[name].type for node in job.graph.nodes for name in node.inputs if "logits" in node.outputs
    ]
    last = next(kind for kind in kinds if isinstance(kind, Quantized))
    return Iss(job, Simulator(job.program), last.scale[0])


def ort_logits(windows: NDArray[np.float32]) -> Logits:
    session = open_session(waveformer(quantized=True))
    return np.concatenate([session.run(None, {"input": window[None]})[0] for window in windows])


def margins(logits: Logits, lsb: float) -> NDArray[np.float32]:
    """LSBs between the largest and the second largest of each row."""
    ordered = np.sort(logits, axis=1)
    return np.asarray((ordered[:, -1] - ordered[:, -2]) / lsb)


def compare(iss: Logits, ort: Logits, lsb: float) -> dict[str, Any]:
    """Top-1 and largest error of each window."""
    errors = np.rint(np.abs(iss - ort).max(axis=1) / lsb).astype(int)
    same, far = iss.argmax(axis=1) == ort.argmax(axis=1), margins(ort, lsb) > LEAST_MARGIN
    return {
        "windows": len(ort),
        "margin above the limit": int(far.sum()),
        "top-1 equal": int(same.sum()),
        "top-1 equal where the margin is above": int(same[far].sum()),
        "smallest margin, LSB": round(float(margins(ort, lsb).min()), 1),
        "without error": int((errors == 0).sum()),
        "largest error, LSB": int(errors.max()),
    }


def accuracy(iss: Iss, windows: NDArray[np.float32], labels: NDArray[np.int64]) -> dict[str, Any]:
    """Share of right answers of ISS and ORT."""
    found = {"ISS": iss.logits(windows), "ORT int8": ort_logits(windows)}
    right = {f"accuracy of {name}": float((each.argmax(axis=1) == labels).mean()) for name, each in found.items()}
    return {"windows for accuracy": len(labels), **right}


@click.command()
@click.option("--windows", default=20, show_default=True, help="Test windows of the comparison.")
@click.option("--test-set", default=200, show_default=True, help="Test windows of the accuracy; 0 leaves it out.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the numbers here.")
def command(windows: int, test_set: int, json_path: Path | None) -> None:
    """Compare WaveFormer on the ISS with ONNX Runtime."""
    found: dict[str, dict[str, Any]] = {}
    inputs, labels = waveformer_windows("test", max(windows, test_set))
    ort = ort_logits(inputs[:windows])
    with tempfile.TemporaryDirectory() as folder:
        for rounding in ROUNDINGS:
            iss = compiled(rounding, Path(folder))
            found[rounding] = compare(iss.logits(inputs[:windows]), ort, iss.lsb)
            if test_set and rounding == "exact":
                found["test set"] = accuracy(iss, inputs[:test_set], labels[:test_set])
            found[rounding]["cycles"] = iss.job.performance.cycles
    if json_path is not None:
        write_bytes(json_path, to_json(found).encode())
    for title, rows in found.items():
        print(grid([(title, ""), *((key, str(value)) for key, value in rows.items())]))


if __name__ == "__main__":
    command()
