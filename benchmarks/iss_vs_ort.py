"""Host time of the ISS against one-thread ONNX Runtime on the same quantised model, measured in turn in one process.

Prints the ratio with the seconds beside it (a ratio alone says little: ORT's int8 path depends on the CPU), the
compile time and the peak memory. Without a model it takes the DETR encoder of ``epu demo``.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from epu.demo import INPUT_SEED, quantise_into
from epu.files import write_bytes
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.models import detr_encoder, detr_inputs
from epu.onnx_util import save_model
from epu.ort_reference import Tensors, cpu_description, plain_session, seconds_of_one_run
from epu.raw_tensors import encode, load_arrays
from epu.reports import grid, to_json
from epu.sample_inputs import sample_inputs
from epu.simulator.simulation import simulate

MEGABYTE = 1024  # ru_maxrss counts kB
WARM_UPS = 1


@click.command()
@click.option("--model", type=click.Path(path_type=Path), help="A quantised model; needs --tranges.")
@click.option("--tranges", type=click.Path(path_type=Path))
@click.option("--inputs", type=click.Path(path_type=Path), help="An .npz file; without it a seeded sample.")
@click.option("--product", default="QC-U", show_default=True)
@click.option("--repeats", default=7, show_default=True, help="Measured runs of each.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the numbers here.")
def command(
    model: Path | None, tranges: Path | None, inputs: Path | None, product: str, repeats: int, json_path: Path | None
) -> None:
    """Compare the host time of the ISS and of one-thread ONNX Runtime."""
    with tempfile.TemporaryDirectory() as folder:
        if model is None:
            model, tranges = quantised_detr(Path(folder))
        numbers = measure(model, tranges, inputs, product, repeats)
    if json_path is not None:
        write_bytes(json_path, to_json(numbers).encode())
    print(grid([(key, text(value)) for key, value in numbers.items()]))


def quantised_detr(folder: Path) -> tuple[Path, Path]:
    """The model of the demo, in ``folder``."""
    save_model(detr_encoder(), folder / "model.onnx")
    quantise_into(folder)
    return folder / "quantized.onnx", folder / "quantized.onnx.tranges"


def measure(model: Path, tranges: Path | None, inputs: Path | None, product: str, repeats: int) -> dict[str, Any]:
    """Compile, then run ORT (both levels) and ISS in turn."""
    job = ChimeraJob(model, HWConfig(product), tranges)
    start = time.perf_counter()
    job.compile()
    compile_seconds = time.perf_counter() - start
    rss_compiled = peak_rss_mb()
    arrays = chosen_inputs(job, inputs)
    seconds = in_turn(job, model, arrays, repeats)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "model": model.name,
        "hw": str(job.hw_config),
        "cpu": cpu_description(),
        "numpy": np.__version__,
        "iss_seconds": median["iss"],
        "ort_seconds": median["ORT_DISABLE_ALL"],
        "ort_default_seconds": median["ORT_ENABLE_ALL"],
        "iss_over_ort": median["iss"] / median["ORT_DISABLE_ALL"],
        "iss_over_ort_default": median["iss"] / median["ORT_ENABLE_ALL"],
        "iss_spread": [min(seconds["iss"]), max(seconds["iss"])],
        "ort_spread": [min(seconds["ORT_DISABLE_ALL"]), max(seconds["ORT_DISABLE_ALL"])],
        "compile_seconds": compile_seconds,
        "peak_rss_mb_compile": rss_compiled,
        "peak_rss_mb": peak_rss_mb(),
        "repeats": repeats,
    }


def chosen_inputs(job: ChimeraJob, path: Path | None) -> Tensors:
    """The file's arrays, the demo's own input where its names fit, else a seeded sample."""
    if path is not None:
        return load_arrays(path)
    demo = detr_inputs(INPUT_SEED)
    fits = {each.name: each.shape for each in job.program.inputs} == {name: a.shape for name, a in demo.items()}
    return dict(demo) if fits else sample_inputs(job.program, job.graph)


def in_turn(job: ChimeraJob, model: Path, arrays: Tensors, repeats: int) -> dict[str, list[float]]:
    """Seconds of each contender, alternating, so that all see the same machine load."""
    sessions = {level: plain_session(model, level) for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL")}
    raw = encode(job.program.inputs, arrays)
    seconds: dict[str, list[float]] = {name: [] for name in (*sessions, "iss")}
    for _ in range(WARM_UPS + repeats):
        for level, session in sessions.items():
            seconds[level].append(seconds_of_one_run(session, arrays))
        seconds["iss"].append(simulate(job.program, raw).seconds)
    return {name: values[WARM_UPS:] for name, values in seconds.items()}


def peak_rss_mb() -> float:
    """The most memory this process has had, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEGABYTE


def text(value: object) -> str:
    if isinstance(value, list):
        return " … ".join(map(text, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    command()
