"""What a run record tells of one program: its kernels and what bounds them, who holds which memory, who is busy when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from epu.occupancy import Holding
from epu.plan import CONSTANTS, SCRATCH, WHOLE
from epu.reports import CYCLE_CLASSES
from epu.simulator.control import Wait
from epu.simulator.energy import energy_of, energy_of_program
from epu.simulator.program import Program
from epu.simulator.timeline import TRACKS, clock_of, coarsened, timeline
from epu.simulator.timing import Clock, CycleCount
from epu.simulator.transfers import Dma
from epu.simulator.work import work_of

if TYPE_CHECKING:
    from epu.compiler import CompiledModule

MOST_SPANS = 8000
LRM_SCOPE = "_local.lrm"  # what the scheduler appends to the name of a stage that lives in LRM

Json = dict[str, Any]


def stage_record(compiled: CompiledModule) -> Json:
    """Kernels, memory and timeline of a compiled module; cycles count from its own start."""
    program = compiled.program
    clock = clock_of(program)
    return {
        "name": program.name,
        "cycles": asdict(clock.window(0, len(program.code))),
        "traffic": {way: _traffic(program, way) for way in ("in", "out")},
        "energy": asdict(energy_of_program(program)),
        "kernels": _kernels(compiled, clock),
        "ocm": _tenants(compiled, clock),
        "lrm": {"peak": list(compiled.memory.lrm_peak), "holdings": _lrm(compiled)},
        "timeline": _timeline(program, clock),
    }


def _traffic(program: Program, direction: str) -> int:
    """Bytes from ("in") and to ("out") external memory."""
    return sum(each.bytes for each in program.code if isinstance(each, Dma) and each.direction == direction)


def bound(cycles: CycleCount, wait: int) -> str:
    """The class with most cycles, empty for a kernel that takes none; of external transfers only the time waited for counts."""
    taken = {name: getattr(cycles, name) for name in CYCLE_CLASSES} | {"data_external": wait}
    longest = max(CYCLE_CLASSES, key=lambda name: taken[name])
    return longest if taken[longest] else ""


def waited(program: Program, clock: Clock, start_pc: int, end_pc: int) -> int:
    """Cycles that the sequencer spends in Wait within [start_pc, end_pc): neither array nor port has work."""
    waits = (pc for pc in range(start_pc, end_pc) if isinstance(program.code[pc], Wait))
    return sum(clock.starts[pc + 1] - clock.starts[pc] for pc in waits)


def _kernels(compiled: CompiledModule, clock: Clock) -> list[Json]:
    program = compiled.program
    ops = {node.name: node.op for node in compiled.graph.nodes}
    found = []
    for span in program.debug.kernels:
        cycles = clock.window(span.start_pc, span.end_pc)
        work = work_of(program.code[span.start_pc : span.end_pc])
        wait = waited(program, clock, span.start_pc, span.end_pc)
        found.append(
            {
                "name": span.name,
                "nodes": list(span.nodes),
                "op": ops.get(span.name, ""),
                "start": clock.starts[span.start_pc],
                "cycles": asdict(cycles),
                **asdict(work),
                "energy": energy_of(work, program.machine).total,
                "wait": wait,
                "bound": bound(cycles, wait),
            }
        )
    return found


def _tenants(compiled: CompiledModule, clock: Clock) -> list[Json]:
    spans = compiled.program.debug.kernels
    starts = [clock.starts[span.start_pc] for span in spans] + [clock.now]
    return [
        {
            **_named(compiled, holding),
            "addr": holding.addr,
            "bytes": holding.size,
            "first": holding.first,
            "last": holding.last,
            "start": starts[holding.first],
            "end": starts[holding.last],
            "kernel": holding.kernel,
        }
        for holding in compiled.memory.ocm
    ]


def _named(compiled: CompiledModule, holding: Holding) -> Json:
    name, place = holding.what
    kernel = compiled.kernels[holding.kernel]
    if place == WHOLE:
        return {"name": name, "kind": "tensor"}
    if holding.what in (CONSTANTS, SCRATCH):
        return {"name": kernel.node.name, "kind": "constants" if holding.what == CONSTANTS else "scratch"}
    return {"name": {**kernel.inputs, **kernel.outputs}.get(name, f"{kernel.node.name}: {name}"), "kind": "slice"}


def _lrm(compiled: CompiledModule) -> list[list[list[Any]]]:
    """By kernel: name, address, bytes, first instruction and the one after the last; stages that hold a tensor have its name."""
    found = []
    for lowered, holdings in zip(compiled.kernels, compiled.memory.lrm):
        tensors = {**lowered.inputs, **lowered.outputs, **lowered.observed}
        plain = [(each.stage.removesuffix(LRM_SCOPE), each) for each in holdings]
        found.append([[tensors.get(stage, stage), *each[1:]] for stage, each in plain])
    return found


def _timeline(program: Program, clock: Clock) -> Json:
    spans, gap = coarsened(timeline(program, clock), MOST_SPANS)
    kinds = list(dict.fromkeys(span.what for span in spans))
    rows = [
        [TRACKS.index(span.track), kinds.index(span.what), span.kernel, span.start, span.end, span.busy, span.count]
        for span in spans
    ]
    return {"gap": gap, "tracks": list(TRACKS), "kinds": kinds, "spans": rows}


def shifted(stage: Json, cycles: int) -> Json:
    """The same stage, its cycles counted from ``cycles`` earlier."""
    spans = [[*each[:3], each[3] + cycles, each[4] + cycles, *each[5:]] for each in stage["timeline"]["spans"]]
    return {
        **stage,
        "start": cycles,
        "kernels": [{**each, "start": each["start"] + cycles} for each in stage["kernels"]],
        "ocm": [{**each, "start": each["start"] + cycles, "end": each["end"] + cycles} for each in stage["ocm"]],
        "timeline": {**stage["timeline"], "spans": spans},
    }


def total(stages: Sequence[Json], field: str = "cycles") -> Json:
    """A field of several stages, summed by class."""
    names = dict.fromkeys(name for stage in stages for name in stage[field])
    return {name: sum(stage[field][name] for stage in stages) for name in names}
