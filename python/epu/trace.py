"""A run record as Chrome trace JSON, for Perfetto and chrome://tracing. Timestamps are microseconds at the machine's clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from epu.reports import CYCLE_FIELDS

Event = dict[str, Any]

TRACK_NAMES = {"array": "PE array", "port": "OCM port", "in": "external reads", "out": "external writes"}
KERNEL_THREAD = 1


def trace_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The trace: a process per EPU stage, in it a thread of kernels and one per track and kind, and the bytes of OCM in use."""
    microseconds = 1e-3 / record["machine"]["clock_ghz"]
    events = [each for stage in record["stages"] if stage["where"] == "EPU" for each in _stage(stage, microseconds)]
    other = {"model": record["model"]["file"], "module": record["settings"]["module"], "cycle_us": microseconds}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}


def _stage(stage: Mapping[str, Any], unit: float) -> Iterator[Event]:
    process = stage["index"] + 1
    yield _named("process_name", process, 0, f"EPU stage {stage['index']}: {stage['name']}")
    yield _named("thread_name", process, KERNEL_THREAD, "kernels")
    for kernel in stage["kernels"]:
        cycles = kernel["cycles"]
        about = {name: cycles[name] for name in CYCLE_FIELDS} | {"nodes": kernel["nodes"], "bound": kernel["bound"]}
        yield _span(kernel["name"], kernel["op"], process, KERNEL_THREAD, kernel["start"], cycles["total"], unit, about)
    yield from _tracks(stage, process, unit)
    yield from _memory(stage, process, unit)


def _tracks(stage: Mapping[str, Any], process: int, unit: float) -> Iterator[Event]:
    """Spans of one track and kind never overlap, so each such pair is a thread."""
    timeline = stage["timeline"]
    threads: dict[tuple[int, int], int] = {}
    for track, kind, kernel, start, end, busy, count in timeline["spans"]:
        name, what = TRACK_NAMES[timeline["tracks"][track]], timeline["kinds"][kind]
        if (track, kind) not in threads:
            threads[track, kind] = KERNEL_THREAD + 1 + len(threads)
            yield _named("thread_name", process, threads[track, kind], f"{name}: {what}")
        owner = stage["kernels"][kernel]["name"] if kernel >= 0 else ""
        about = {"kernel": owner, "busy_cycles": busy, "instructions": count}
        yield _span(what, name, process, threads[track, kind], start, end - start, unit, about)


def _memory(stage: Mapping[str, Any], process: int, unit: float) -> Iterator[Event]:
    changes: dict[int, int] = {}
    for tenant in stage["ocm"]:
        changes[tenant["start"]] = changes.get(tenant["start"], 0) + tenant["bytes"]
        changes[tenant["end"]] = changes.get(tenant["end"], 0) - tenant["bytes"]
    used = 0
    for cycle in sorted(changes):
        used += changes[cycle]
        counter = {"ph": "C", "name": "OCM in use", "pid": process, "tid": 0}
        yield {**counter, "ts": cycle * unit, "args": {"bytes": used}}


def _named(what: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _span(
    name: str, category: str, process: int, thread: int, start: int, cycles: int, unit: float, about: Event
) -> Event:
    where = {"ph": "X", "name": name, "cat": category or "kernel", "pid": process, "tid": thread}
    return {
        **where,
        "ts": start * unit,
        "dur": cycles * unit,
        "args": {"start_cycle": start, "cycles": cycles, **about},
    }
