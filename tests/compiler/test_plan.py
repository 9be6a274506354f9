"""The planner: random plans carried out on bytes, then one test for each thing it decides."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from transfers import Carrier

from epu.plan import CONSTANT_TAGS, Plan, Task, make_plan
from epu.simulator.transfers import Dma
from epu.staging import Stream, slice_of

BLOCK = 64
size = st.sampled_from((1, 63, 64, 65, 128, 200, 640))
Draw = Any


def align(count: int) -> int:
    return -(-count // BLOCK) * BLOCK


class Job:
    """Tasks with their tensors and external addresses."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.sizes: dict[str, int] = {}
        self.shapes: dict[str, tuple[int, int]] = {}
        self.home: dict[str, int] = {}
        self.constants: dict[int, int] = {}
        self.outputs: frozenset[str] = frozenset()
        self.ext = 0

    def external(self, count: int) -> int:
        address, self.ext = self.ext, self.ext + align(count)
        return address

    def constant(self, count: int) -> int:
        address = self.external(count)
        self.constants[address] = count
        return address

    def add(self, name: str, count: int, rows: int = 1, at_home: bool = False) -> str:
        self.sizes[name], self.shapes[name] = count * rows, (rows, count)
        if at_home:
            self.home[name] = self.external(count * rows)
        return name

    def task(self, reads: tuple[str, ...], writes: tuple[str, ...], constants: int = 0, scratch: int = 0) -> None:
        where = self.constant(constants) if constants else 0
        self.tasks.append(Task(f"t{len(self.tasks)}", reads, writes, constants, where, scratch))

    def need(self, task: Task) -> int:
        """OCM bytes of a task."""
        tensors = sum(align(self.sizes[name]) for name in {*task.reads, *task.writes})
        places = sum(align(stream.slot_bytes) * stream.slots for stream in task.streams)
        return tensors + places + sum(align(count) for count in (task.constants, task.scratch) if count)

    def plan(self, ocm: int) -> Plan:
        return make_plan(self.tasks, self.sizes, self.home, self.outputs, self.ext, ocm)

    def carry_out(self, ocm: int) -> Plan:
        """The plan, carried out; every output ends at its external address."""
        plan, rng = self.plan(ocm), np.random.default_rng(1)
        values = {name: rng.integers(0, 255, count, np.uint8) for name, count in self.sizes.items()}
        constants = {address: rng.integers(0, 255, count, np.uint8) for address, count in self.constants.items()}
        carrier = Carrier(values, constants, plan, ocm)
        for name in set(self.home) - self.outputs:
            carrier.put("ext", self.home[name], values[name])
        carrier.run(self.tasks)
        for name in self.outputs:
            carrier.check(f"output {name}", "ext", self.home[name], values[name])
        assert plan.ocm_bytes <= ocm
        return plan


def stream(job: Job, param: str, tensor: str, parts: int, depth: int, written: bool, sliced: int) -> Stream:
    """Rows (0) or columns (1) of a tensor, or of a constant where it has no name."""
    rows, columns = job.shapes[tensor] if tensor else (parts, 24)
    extent = (rows, columns)[sliced]
    cuts = [(k * extent // parts, (k + 1) * extent // parts) for k in range(parts)]
    regions = [[cut, (0, columns)] if sliced == 0 else [(0, rows), cut] for cut in cuts]
    slices = tuple(slice_of((rows, columns), region, 1) for region in regions)
    at = 0 if tensor else job.constant(rows * columns)
    return Stream(param, tensor, at, slices, max(piece.bytes for piece in slices), depth, written)


@st.composite
def jobs(draw: Draw) -> tuple[Job, int]:
    """Whole and split tasks over a growing set of tensors, and an OCM in which each fits."""
    job = Job()
    known = [
        job.add(f"in{k}", draw(size), draw(st.sampled_from((1, 4, 8))), at_home=True)
        for k in range(draw(st.integers(1, 3)))
    ]
    for index in range(draw(st.integers(1, 8))):
        reads = tuple(draw(st.lists(st.sampled_from(known), max_size=3, unique=True)))
        split = draw(st.sampled_from((False, False, True)))
        made = job.add(f"t{index}", draw(size) if not split else 64 * draw(st.integers(1, 3)), 8 if split else 1)
        tall = [name for name in reads if job.shapes[name][0] >= 4]
        if split:
            parts, depth, sliced = (
                draw(st.sampled_from((2, 3, 4))),
                draw(st.sampled_from((1, 2))),
                draw(st.sampled_from((0, 0, 1))),
            )
            passing = [stream(job, "Y", made, parts, depth, True, sliced)]
            passing += [stream(job, f"X{k}", name, parts, depth, False, 0) for k, name in enumerate(tall)]
            passing += [stream(job, "C", "", parts, depth, False, 0)] if draw(st.booleans()) else []
            rest = tuple(name for name in reads if name not in tall)
            job.tasks.append(
                Task(f"t{index}", rest, (), 0, 0, draw(st.sampled_from((0, 100))), tuple(passing), parts, depth)
            )
        else:
            job.task(reads, (made,), draw(st.sampled_from((0, 1, 300))), draw(st.sampled_from((0, 0, 100))))
        known.append(made)
    produced = [name for name in known if name not in job.home]
    outputs = draw(st.lists(st.sampled_from(produced), min_size=1, max_size=2, unique=True))
    job.outputs = frozenset(outputs)
    job.home.update({name: job.external(job.sizes[name]) for name in outputs})
    return job, max(map(job.need, job.tasks)) + BLOCK * draw(st.integers(0, 12))


@settings(max_examples=150)
@given(jobs())
def test_random_plans_deliver_every_byte(drawn: tuple[Job, int]) -> None:
    """In the least OCM that holds each task alone, and in more: operands are there, nothing overlaps, outputs arrive."""
    job, ocm = drawn
    job.carry_out(ocm)


def moves(plan: Plan, job: Job) -> list[tuple[int, str, str]]:
    """(step, direction, tensor) of each transfer of a tensor; a spilled one is recognised by its size."""
    homes = {address: name for name, address in job.home.items()}
    by_size = {count: name for name, count in job.sizes.items()}
    found = []
    for index, step in enumerate(plan.steps):
        for each in (*step.before, *step.after):
            if isinstance(each, Dma) and each.tag not in CONSTANT_TAGS:
                found.append((index, each.direction, homes.get(each.ext_addr) or by_size[each.shape[0]]))
    return found


def chain(*last_uses: int) -> Job:
    """Three tensors of different sizes made from x and read again: a by task ``last_uses[0]``, and so on."""
    job = Job()
    job.add("x", 10, at_home=True)
    for name, count in (("a", 101), ("b", 102), ("c", 103)):
        job.task(("x",), (job.add(name, count),))
    for position in range(3, 3 + len(last_uses)):
        name = "abc"[last_uses.index(position)]
        job.task((name,), (job.add(f"y{position}", 20 + position),))
    job.outputs = frozenset(name for name in job.sizes if name.startswith("y"))
    job.home.update({name: job.external(job.sizes[name]) for name in sorted(job.outputs)})
    return job


def test_what_is_needed_last_is_spilled_and_comes_back() -> None:
    """x, a and b fill the OCM; c needs room: b is read after a."""
    job = chain(3, 5, 4)
    plan = job.carry_out(64 + 3 * 128)
    assert moves(plan, job) == [
        (0, "in", "x"),
        (3, "out", "y3"),
        (4, "out", "y4"),
        (5, "out", "y5"),
    ]
    plan = job.carry_out(64 + 2 * 128)
    assert (2, "out", "b") in moves(plan, job)
    assert (5, "in", "b") in moves(plan, job)
    assert not [each for each in moves(plan, job) if each[2] in "ac"]
    assert plan.temporary_bytes == 128


def test_the_furthest_use_decides() -> None:
    job = chain(5, 3, 4)
    plan = job.carry_out(64 + 2 * 128)
    assert (2, "out", "a") in moves(plan, job)
    assert not [each for each in moves(plan, job) if each[2] in "bc"]


def test_a_tensor_is_copied_out_once() -> None:
    """a makes room twice; its external copy stays good."""
    job = Job()
    job.add("x", 10, at_home=True)
    job.task(("x",), (job.add("a", 101),))
    job.task(("x",), (job.add("b", 310),))
    job.task(("a",), (job.add("c", 20),))
    job.task(("c",), (job.add("d", 311),))
    job.task(("a", "c"), (job.add("y", 30),))
    job.outputs, job.home["y"] = frozenset("y"), job.external(30)
    found = [each for each in moves(job.carry_out(64 + 320), job) if each[2] == "a"]
    assert found == [(1, "out", "a"), (2, "in", "a"), (4, "in", "a")]


def test_an_input_is_dropped_and_read_again_without_a_copy() -> None:
    job = Job()
    job.add("x", 300, at_home=True)
    job.task(("x",), (job.add("a", 100),))
    job.task(("a",), (job.add("b", 301),))
    job.task(("x", "b"), (job.add("y", 50),))
    job.outputs, job.home["y"] = frozenset("y"), job.external(50)
    assert moves(job.carry_out(320 + 128 + 320), job) == [(0, "in", "x"), (2, "out", "y")]
    assert moves(job.carry_out(320 + 320 + 64), job) == [(0, "in", "x"), (2, "in", "x"), (2, "out", "y")]


def test_constants_come_one_kernel_ahead_where_there_is_room() -> None:
    def started(ocm: int) -> list[int]:
        job = Job()
        job.add("x", 64, at_home=True)
        job.task(("x",), (job.add("a", 64),), constants=640)
        job.task(("a",), (job.add("y", 64),), constants=640)
        job.outputs, job.home["y"] = frozenset("y"), job.external(64)
        plan = job.carry_out(ocm)
        return [
            k
            for k, step in enumerate(plan.steps)
            for each in step.before
            if isinstance(each, Dma) and each.tag in CONSTANT_TAGS
        ]

    assert started(128 + 2 * 640) == [0, 0]
    assert started(128 + 640) == [0, 1]


def test_fragments_are_cleared_away() -> None:
    """Two small tensors with a gap between them and a task that needs all the rest in one piece."""
    job = Job()
    job.add("x", 64, at_home=True)
    job.task(("x",), (job.add("a", 64),))
    job.task(("a",), (job.add("b", 64),))
    job.task(("b",), (job.add("c", 64),))
    job.task(("x", "c"), (job.add("y", 256),), scratch=64)
    job.outputs, job.home["y"] = frozenset("y"), job.external(256)
    for blocks in range(7, 12):
        job.carry_out(64 * blocks)
