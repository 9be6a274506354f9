"""Measures the points of a sweep that its folder does not hold yet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from epu.errors import UserError
from epu.files import write_bytes
from epu.reports import to_json
from epu.sweep import workers
from epu.sweep.measure import measure
from epu.sweep.points import FAILED, Point, Row, digest, pareto
from epu.sweep.store import Store, as_csv

Progress = Callable[[str, int, int], None]


def run_sweep(
    model: str | os.PathLike[str],
    points: Sequence[Point],
    folder: str | os.PathLike[str],
    *,
    tranges: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """One row per point, in their order; ``folder`` gets sweep.json and sweep.csv, and keeps each row as soon as it is there.

    ``jobs`` local processes (all cores where None), or the Dask cluster of ``scheduler``. A row's ``status`` is "ok",
    "refused" (its ``error`` says why) or "failed" (an error of EPU, or a worker that died every time): those are measured
    again by the next sweep into the same folder. ``pareto`` marks the rows that no other one beats in latency, energy and
    OCM size together. Raises UserError for a file that cannot be read.
    """
    data, ranges = _model_bytes(Path(model)), None if tranges is None else _bytes(Path(tranges))
    store, name = Store(Path(folder)), Path(model).stem
    keys = {point: point.key(digest(data, ranges)) for point in points}
    rows = {point: row for point, key in keys.items() if (row := store.row(key)) is not None}
    calls = {keys[p]: (measure, (p, data, ranges, name)) for p in points if p not in rows}
    by_key = {key: point for point, key in keys.items()}
    for key, result in _results(calls, jobs, scheduler):
        point = by_key[key]
        rows[point] = _failed(point, result) if isinstance(result, BaseException) else result
        store.keep(key, rows[point])
        if progress is not None:
            progress("Sweep", len(rows), len(points))
    return _write([rows[point] for point in points], store.folder)


def _results(
    calls: dict[str, workers.Call], jobs: int | None, scheduler: str | None
) -> Iterator[tuple[str, workers.Result]]:
    if not calls:
        return iter(())
    return workers.dask(calls, scheduler) if scheduler else workers.local(calls, jobs or os.cpu_count() or 1)


def _failed(point: Point, error: BaseException) -> Row:
    told = f"{type(error).__name__}: {error}"
    return {**dict(point.options), "rounding": point.rounding, "status": FAILED, "error": told}


def _write(rows: list[Row], folder: Path) -> list[Row]:
    done = [{**row, "pareto": best} for row, best in zip(rows, pareto(rows), strict=True)]
    write_bytes(folder / "sweep.json", to_json(done).encode())
    write_bytes(folder / "sweep.csv", as_csv(done).encode())
    return done


def _model_bytes(path: Path) -> bytes:
    """The model with its external data inside."""
    from epu.onnx_util import load_model

    return bytes(load_model(path).SerializeToString())


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"'{path}' cannot be read: {error.strerror}. Check the path.") from error
