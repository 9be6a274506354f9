"""Timeline and work of the program by hand: every number from docs/design.md's cycle rules."""

from __future__ import annotations

import sys
from pathlib import Path

from epu.simulator.instructions import Alu, Grid, Imm, Load, Lrm, Mac, Ocm, Reduce, Store
from epu.simulator.timeline import Span, clock_of, coarsened, timeline
from epu.simulator.work import Work, work_of

sys.path.append(str(Path(__file__).resolve().parents[1] / "job"))

from tiny_module import tiny_program


def test_every_instruction_of_the_program_by_hand() -> None:
    program = tiny_program()
    spans = timeline(program, clock_of(program))
    first_in, last_out = 200 + 2, 200 + 2  # latency, and 32 bytes at 16 bytes per cycle
    assert [span for span in spans if span.track in ("in", "out")] == [
        Span("in", "Dma", 0, 0, 0, first_in, first_in),
        Span("out", "Dma", -1, 9, spans[-1].start, spans[-1].start + last_out, last_out),
    ]
    port = [(span.what, span.pc, span.busy) for span in spans if span.track == "port"]
    assert port == [("Load", 2, 8), ("Store", 4, 2), ("Load", 5, 2), ("Store", 8, 8)]
    array = [(span.what, span.pc, span.busy) for span in spans if span.track == "array"]
    assert array == [("compute", 3, 8 * (2 + 2)), ("compute", 6, 8), ("compute", 7, 8)]
    assert next(span for span in spans if span.pc == 3).start == first_in + 8


def spans_of(*starts: int, what: str = "Load", kernel: int = 0) -> list[Span]:
    return [Span("port", what, kernel, pc, start, start + 2, 2) for pc, start in enumerate(starts)]


def test_neighbours_are_joined_and_busy_cycles_stay() -> None:
    assert coarsened(spans_of(0, 2, 10), 99) == ([Span("port", "Load", 0, 0, 0, 4, 4, 2), spans_of(0, 2, 10)[2]], 0)
    joined, gap = coarsened(spans_of(0, 2, 10, 100), 2)
    assert gap == 8  # the smallest power of two that is at least 6
    assert [(span.start, span.end, span.busy, span.count) for span in joined] == [(0, 12, 6, 3), (100, 102, 2, 1)]


def test_kinds_and_kernels_are_never_joined() -> None:
    mixed = [*spans_of(0), *spans_of(2, what="Store"), *spans_of(4, kernel=1)]
    assert coarsened(mixed, 1)[0] == mixed


def test_work_by_hand() -> None:
    grid, words = Grid((2,), (4,)), Lrm(0, "i32", (4,))
    load = Load(grid, (8,), words, Ocm(0, "i32", (64,), (128,), (4,)))
    shared = Load(grid, (8,), words, Ocm(0, "i32", (0,), (128,), (4,)))
    store = Store(grid, (8,), Ocm(0, "i32", (64,), (128,), (4,)), words)
    assert work_of([load]) == Work(port_bytes=2 * 4 * 8 * 4)
    assert work_of([shared]) == Work(port_bytes=4 * 8 * 4)  # one transfer serves both rows
    assert work_of([store]) == work_of([load])
    assert work_of([Alu("add", grid, (8,), words, words, Imm(1), None, None, False)]) == Work(operations=2 * 4 * 8)
    reduce = Reduce("sum", grid, (3, 8), 1, Lrm(512, "i32", (4,)), Lrm(0, "i32", (32, 4)), False)
    assert work_of([reduce, reduce]) == Work(operations=2 * 2 * 4 * 24)


def test_work_of_a_matrix_product() -> None:
    grid = Grid((2,), (4,))
    a, acc = Lrm(0, "i8", (5, 1)), Lrm(64, "i32", (12, 4))
    mac = Mac(grid, (6,), (3,), 4, 5, acc, a, Ocm(0, "i8", (), (60,), (20, 5, 1)))
    outputs, depth = 2 * 6 * 4 * 3, 4 * 5
    assert work_of([mac]) == Work(
        macs=outputs * depth, port_bytes=4 * 3 * depth
    )  # each column its own B, rows share it
