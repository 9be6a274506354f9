"""When which part of the machine is busy, and with what: from the cycle model alone, so it is the same for all values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from epu.simulator.program import Program
from epu.simulator.timing import Clock

TRACKS = ("array", "port", "in", "out")  # the PEs; words between OCM and array; external reads; external writes
ARRAY_CLASSES = ("compute", "mac", "data_array")


@dataclass(frozen=True)
class Span:
    """A stretch of one track in cycles. ``what``: a cycle class on the array, elsewhere the instruction's name.

    ``busy`` cycles of it are work of ``count`` instructions, the first of which is ``pc``.
    """

    track: str
    what: str
    kernel: int
    pc: int
    start: int
    end: int
    busy: int
    count: int = 1


def clock_of(program: Program) -> Clock:
    """The clock after the whole program."""
    clock = Clock()
    for instruction in program.code:
        clock.issue(instruction, instruction.cycles(program.machine))
    return clock


def timeline(program: Program, clock: Clock) -> list[Span]:
    """Every instruction's spans, by track and then in time. ``kernel`` is -1 outside all kernels."""
    owners = _owners(program)
    spans = list(_array(clock, owners))
    for track in TRACKS[1:]:
        for pc, start, end in clock.channels[track].spans():
            what = type(program.code[pc]).__name__
            spans.append(Span(track, what, owners[pc], pc, start, end, end - start))
    return spans


def _array(clock: Clock, owners: Sequence[int]) -> Iterator[Span]:
    for pc, start in enumerate(clock.starts[:-1]):
        work = clock.work(pc)
        busy = sum(work)
        if busy:
            yield Span("array", ARRAY_CLASSES[work.index(max(work))], owners[pc], pc, start, start + busy, busy)


def _owners(program: Program) -> list[int]:
    """Kernel number by pc."""
    owners = [-1] * len(program.code)
    for index, span in enumerate(program.debug.kernels):
        owners[span.start_pc : span.end_pc] = [index] * (span.end_pc - span.start_pc)
    return owners


def coarsened(spans: Iterable[Span], limit: int) -> tuple[list[Span], int]:
    """Neighbours of one track, kernel and kind as one where at most ``gap`` idle cycles lie between them.

    ``gap`` is the smallest of 0, 1, 2, 4, … that leaves at most ``limit`` spans, or that leaves no more to join; returns
    the spans and ``gap``. Busy cycles stay exact.
    """
    found, gap = _joined(spans, 0), 0
    longest = max((span.end for span in found), default=0)
    while len(found) > limit and gap <= longest:
        gap = gap * 2 or 1
        found = _joined(found, gap)
    return found, gap


def _joined(spans: Iterable[Span], gap: int) -> list[Span]:
    done: list[Span] = []
    last: dict[tuple[str, str, int], int] = {}
    for span in spans:
        key = (span.track, span.what, span.kernel)
        position = last.get(key)
        if position is not None and span.start - done[position].end <= gap:
            old = done[position]
            busy, count = old.busy + span.busy, old.count + span.count
            done[position] = Span(*key[:2], span.kernel, old.pc, old.start, span.end, busy, count)
        else:
            last[key] = len(done)
            done.append(span)
    return done
