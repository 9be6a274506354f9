"""A sweep on a Dask cluster of this machine, of which one worker is killed midway."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from epu.sweep import grid_of, run_sweep
from epu.sweep.points import OK

pytest.importorskip("tvm", reason="the Relay door needs TVM")
distributed = pytest.importorskip("distributed", reason="Dask is not installed")


def test_killed_worker_loses_nothing(tiny: Path, tmp_path: Path) -> None:
    points = grid_of({"product": ["QC-N"], "ocm_size": [f"{size}kB" for size in range(512, 3072, 512)]})
    killed: list[int] = []
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        pids = [worker.pid for worker in cluster.workers.values()]

        def kill_one(what: str, done: int, of: int) -> None:
            if not killed:
                os.kill(pids[0], signal.SIGKILL)
                killed.append(done)

        rows = run_sweep(tiny, points, tmp_path, scheduler=cluster.scheduler_address, progress=kill_one)
    assert killed == [1]
    assert [row["status"] for row in rows] == [OK] * len(points)
    assert [row["ocm_size"] for row in rows] == [dict(point.options)["ocm_size"] for point in points]
