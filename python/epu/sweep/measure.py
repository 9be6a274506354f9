"""One point of a sweep, measured where the worker is: it gets the model's bytes and shares no folder with anybody."""

from __future__ import annotations

import logging
import tempfile
import time
from pathlib import Path

from epu.errors import EpuError
from epu.sweep.points import OK, REFUSED, Point, Row


def measure(point: Point, model: bytes, tranges: bytes | None, name: str) -> Row:
    """Compile and simulate the model for the point's machine.

    A row of status "refused" with the reason where the machine or the model on it is refused; any other error is raised.
    """
    logging.getLogger("epu").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        try:
            return {**_base(point), **_measured(point, Path(folder), model, tranges, name)}
        except EpuError as error:
            return {**_base(point), "status": REFUSED, "error": str(error)}


def _base(point: Point) -> Row:
    return {**dict(point.options), "rounding": point.rounding}


def _measured(point: Point, folder: Path, model: bytes, tranges: bytes | None, name: str) -> Row:
    from epu.job import ChimeraJob

    hardware = point.hw_config
    path, ranges = folder / f"{name}.onnx", folder / f"{name}.tranges"
    path.write_bytes(model)
    if tranges is not None:
        ranges.write_bytes(tranges)
    job = ChimeraJob(
        path, hardware, ranges if tranges is not None else None, rounding=point.rounding, run_directory=folder / "run"
    )
    start = time.perf_counter()
    job.compile()
    compiled = time.perf_counter() - start
    performance, peak = job.performance, job.report()["peak"]
    return {
        "status": OK,
        "error": "",
        "hw": str(hardware),
        "cycles": performance.cycles,
        "latency_ms": performance.seconds * 1e3,
        "energy_uj": performance.energy_joules * 1e6,
        "ocm_bytes": hardware.machine.ocm_bytes,
        "peak_ocm_bytes": peak["ocm_bytes"],
        "peak_lrm_bytes": peak["lrm_bytes"],
        "ext_read_bytes": performance.ext_read_bytes,
        "ext_write_bytes": performance.ext_write_bytes,
        "mac_utilization": performance.mac_utilization,
        "host_nodes": len(job.host_nodes),
        "compile_seconds": compiled,
    }
