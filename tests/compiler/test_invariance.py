"""What may differ between machines and runs, and what must not: values never, cycles only with the machine."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from attention import attention, sample
from one_node import MACHINES, Answers, assert_same_answers, run

from epu.compiler import CompiledModule, compile_graph
from epu.simulator import Program, simulate
from epu.simulator.timing import CycleCount
from epu.tir_schedules import compile_kernel

PARTS = ("compute", "mac", "data_array", "data_ocm", "data_external")
SMALL = MACHINES["QC-N"]


@pytest.fixture(scope="module")
def module() -> CompiledModule:
    return compile_graph(attention(), SMALL)


def assert_equal(found: Answers, expected: Answers) -> None:
    assert found.result.cycles == expected.result.cycles
    assert found.result.kernels == expected.result.kernels
    assert found.observed.keys() == expected.observed.keys()
    for name in expected.observed:
        np.testing.assert_array_equal(found.observed[name], expected.observed[name], strict=True)


@pytest.mark.parametrize("rounding", ["exact", "ort"])
def test_the_machine_never_changes_a_value(rounding: str) -> None:
    answers = assert_same_answers(attention(), sample(), list(MACHINES.values()), rounding)
    outputs = {each.result.outputs["y"].tobytes() for each in answers}
    assert len(outputs) == 1


def test_more_macs_take_fewer_mac_cycles() -> None:
    graph, inputs = attention(rows=16, width=32), sample(rows=16, width=32)
    eight, sixteen = (run(compile_graph(graph, MACHINES[name]), inputs) for name in ("QC-N", "QC-N, 16 MACs"))
    assert sixteen.result.cycles.mac < eight.result.cycles.mac
    assert sixteen.result.outputs["y"].tobytes() == eight.result.outputs["y"].tobytes()


def test_observing_changes_nothing(module: CompiledModule) -> None:
    alone, watched = simulate(module.program, sample()), run(module, sample()).result
    assert alone.cycles == watched.cycles
    assert alone.kernels == watched.kernels
    np.testing.assert_array_equal(alone.outputs["y"], watched.outputs["y"], strict=True)


def test_every_tensor_is_observed_or_shown_by_a_view(module: CompiledModule) -> None:
    made = {name for node in attention().nodes for name in node.outputs}
    assert made - set(module.views) == set(run(module, sample()).observed)
    assert set(module.views) == {"y"}
    np.testing.assert_array_equal(module.golden(sample())["y"], module.golden(sample())["rounded"].ravel())


def test_observed_tensors_decode_like_the_graph(module: CompiledModule) -> None:
    """A tap of a fixed-point tensor carries the fraction bits of the tensor."""
    for tap in module.program.debug.taps:
        assert tap.decode.frac == module.graph.tensors[tap.tensor].type.frac  # type: ignore[union-attr]
        assert tap.shape == module.graph.tensors[tap.tensor].shape


def test_cycles_of_each_kernel_add_up(module: CompiledModule) -> None:
    result = simulate(module.program, sample())
    for count in (*result.kernels, result.cycles):
        assert sum(getattr(count, part) for part in PARTS) - count.overlap == count.total
        assert count.overlap >= 0
    assert {each.name for each in fields(CycleCount)} == {*PARTS, "total", "overlap"}
    assert sum(count.total for count in result.kernels) == result.cycles.total


def test_kernels_cover_the_program(module: CompiledModule) -> None:
    spans = module.program.debug.kernels
    assert [span.start_pc for span in spans] == [0, *(span.end_pc for span in spans[:-1])]
    assert spans[-1].end_pc == len(module.program.code) - 1  # Halt
    assert [span.name for span in spans] == [kernel.node.name for kernel in module.kernels]
    covered = [name for span in spans for name in span.nodes]
    assert covered == [node.name for node in attention().nodes if node.op != "Reshape"]


def test_macs_of_kernels_are_those_of_the_graph(module: CompiledModule) -> None:
    assert sum(span.macs for span in module.program.debug.kernels) == round(module.gmacs * 1e9)
    assert module.gmacs * 1e9 == 3 * 6 * 8 * 8 + 2 * 6 * 6 * 8


def test_the_program_file_gives_the_same_run(module: CompiledModule) -> None:
    data = module.program.to_bytes()
    again = Program.from_bytes(data)
    assert again == module.program
    first, second = simulate(module.program, sample()), simulate(again, sample())
    assert (first.cycles, first.kernels) == (second.cycles, second.kernels)
    np.testing.assert_array_equal(first.outputs["y"], second.outputs["y"], strict=True)


def test_compiling_twice_gives_the_same_bytes(module: CompiledModule) -> None:
    assert compile_graph(attention(), SMALL).program.to_bytes() == module.program.to_bytes()


def test_the_engines_agree(module: CompiledModule) -> None:
    assert_equal(run(module, sample(), engine="step"), run(module, sample()))


def test_equal_kernels_are_scheduled_once() -> None:
    """q, k and v are one kernel with three sets of constants; another machine needs its own."""
    known = compile_kernel._DONE
    graph, before = attention(rows=5, width=12), len(known)
    module = compile_graph(graph, SMALL)
    keys = {kernel.kernel.key for kernel in module.kernels}
    assert len(module.kernels) - len(keys) == 2
    assert len(known) - before == len(keys)
    compile_graph(graph, SMALL)
    assert len(known) - before == len(keys)
    compile_graph(graph, MACHINES["QC-N, 16 MACs"])
    assert len(known) - before == 2 * len(keys)
