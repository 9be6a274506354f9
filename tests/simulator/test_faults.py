"""Each fault stops the machine and says where: pc, instruction, operand, ONNX node, limit and value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_programs import fill, machine

from epu.simulator import simulate
from epu.simulator.errors import MachineFault, ProgramError, UserError
from epu.simulator.instructions import (
    AllReduce,
    Alu,
    Dma,
    Grid,
    Halt,
    Imm,
    Instruction,
    Load,
    Lrm,
    Lut,
    Mac,
    MacLocal,
    Ocm,
    Reduce,
    Store,
    Wait,
)
from epu.simulator.program import Buffer, Constant, DebugMap, KernelSpan, Program

TARGET = machine(2, 2, 8)
ALL = Grid((2,), (2,))
ONE = Grid((1,), (1,))


def word(addr: int, *strides: int) -> Lrm:
    return Lrm(addr, "i32", strides)


def run(*body: Instruction, filled: bool = True, **options: Any) -> None:
    head = fill(TARGET) if filled else []
    spans = (
        KernelSpan("head", ("first",), 0, len(head)),
        KernelSpan("k", ("layer/Gelu",), len(head), len(head) + len(body)),
    )
    constant = Constant(0, bytes(range(256)) * 32)
    simulate(Program(TARGET, (*head, *body, Halt()), 8192, (constant,), debug=DebugMap(spans)), {}, **options)


MOVE = Alu("mov", ALL, (2,), word(0, 4), Imm(1))
DMA = Dma("in", 0, 0, (64,), (1,), (1,), 1, 1)
LATE = Load(ALL, (4,), Lrm(64, "i8", (1,)), Ocm(0, "i8", (4,), (8,), (1,)), 2)
MAC = Mac(ALL, (1,), (1,), 2, 4, word(0, 4, 4), Lrm(16, "i8", (4, 1)), Ocm(0, "i8", (), (8,), (8, 4, 1)))

STATIC: list[tuple[Instruction, str, str]] = [
    (Alu("mov", ALL, (2,), word(252, 4), Imm(1)), "dst", "LRM bytes 0 to 256, found 252 to 260"),
    (Alu("mov", ALL, (2,), word(0, -4), Imm(1)), "dst", "found -4 to 4"),
    (Alu("mov", ALL, (2,), word(2, 4), Imm(1)), "dst", "multiples of 4, found 2"),
    (Alu("mov", ALL, (2,), word(0, 6), Imm(1)), "dst", "multiples of 4, found 6"),
    (Alu("mov", ALL, (2,), word(0, 0), Imm(1)), "dst", "written elements must not overlap"),
    (Alu("add", ALL, (2,), word(0, 4), word(4, 4), Imm(1)), "dst", "must not overwrite what later elements read"),
    (Alu("mov", Grid((3,), (1,)), (2,), word(0, 4), Imm(1)), "grid", "at most 2 x 2 PEs, found 3 x 1"),
    (Alu("mov", ALL, (0,), word(0, 4), Imm(1)), "loops", "at least 1, found"),
    (Alu("div", ALL, (2,), word(0, 4), Imm(1), Imm(1)), "op", "found 'div'"),
    (Alu("add", ALL, (2,), word(0, 4), Imm(1)), "b", "takes operands a, b"),
    (Alu("mov", ALL, (2,), word(0), Imm(1)), "dst", "must have 1 strides"),
    (Alu("mov", ALL, (2,), Lrm(0, "f32", (4,)), Imm(1)), "dst", "found 'f32'"),
    (Alu("mov", ALL, (2,), word(0, 4), Imm(1 << 63)), "a", "found 9223372036854775808"),
    (Lut(ALL, (1,), word(0, 4), Lrm(0, "i8"), word(64, 4), 16), "dst", "must not overwrite"),
    (Lut(ALL, (1,), word(0, 4), Lrm(250, "i8"), word(64, 4), 16), "table", "found 250 to 266"),
    (Reduce("mean", ALL, (2,), 1, word(0), word(64, 4)), "op", "found 'mean'"),
    (Reduce("sum", ALL, (2,), 2, word(0), word(64, 4)), "n_reduced", "found 2"),
    (AllReduce("sum", ALL, (2,), word(0, 4), word(0, 4), 3), "group", "must divide the active columns"),
    (Mac(ALL, (1,), (1,), 4, 4, word(0, 4, 4), MAC.a, MAC.b), "ring", "must divide the active columns .2., found 4"),
    (Mac(ALL, (1,), (1,), 2, 4, word(0, 4, 4), MAC.a, Ocm(0, "i8", (4,), (8,), (8, 4, 1))), "b", "no row strides"),
    (
        Mac(ALL, (1,), (1,), 2, 4, word(0, 4, 4), MAC.a, Ocm(8190, "i8", (), (8,), (8, 4, 1))),
        "b",
        "OCM bytes 0 to 8192",
    ),
    (MacLocal(ALL, (2,), 1, Lrm(0, "i64"), Lrm(8, "i8", (1,)), Lrm(16, "i8", (1,))), "acc", "dtype must be one of i32"),
    (Store(ALL, (1,), Ocm(0, "i32", (), (4,), (4,)), word(0, 4)), "dst", "written elements must not overlap"),
    (
        Store(ALL, (1,), Ocm(0, "i8", (2,), (1,), (1,)), word(0, 4)),
        "dst",
        "dtype must equal that of src .i32., found i8",
    ),
    (Load(ALL, (1,), word(0, 4), Ocm(0, "i32", (4, 4), (4,), (4,))), "OCM side", "must have 1 row strides"),
    (Load(ALL, (1,), word(0, 4), Ocm(0, "i32", (4,), (4,), (4,)), 256), "tag", "must be 0 to 255, found 256"),
    (Dma("up", 0, 0, (1,), (1,), (1,), 1, 1), "direction", "found 'up'"),
    (Dma("in", 8192, 0, (1,), (1,), (1,), 1, 1), "ext_addr", "EXT bytes 0 to 8192, found 8192 to 8193"),
    (Dma("in", 0, 0, (2,), (1,), (0,), 1, 1), "ocm_addr", "must not overlap"),
    (Dma("in", 0, 0, (2,), (1,), (1,), 1, 0), "tag", "must be 1 to 255, found 0"),
]


@pytest.mark.parametrize(("instruction", "operand", "text"), STATIC, ids=lambda each: str(each)[:40])
def test_limits(instruction: Instruction, operand: str, text: str) -> None:
    with pytest.raises(MachineFault, match=text) as caught:
        run(instruction, strict=False)
    assert_placed(caught.value, 3, operand, instruction)


def assert_placed(fault: MachineFault, pc: int, operand: str, instruction: Instruction) -> None:
    assert (fault.pc, fault.operand, fault.node) == (pc, operand, "layer/Gelu")
    assert fault.instruction == str(instruction)
    for part in (f"pc {pc}", f"'{operand}'", str(instruction), "ONNX node 'layer/Gelu'"):
        assert part in str(fault)


DYNAMIC: list[tuple[list[Instruction], str, str]] = [
    (
        [DMA, Load(ALL, (4,), Lrm(0, "i8", (1,)), Ocm(60, "i8", (), (), (1,)))],
        "src",
        "written by the transfer of tag 1",
    ),
    ([Dma("out", 0, 0, (64,), (1,), (1,), 1, 1), DMA], "ext_addr", "written by the transfer of tag 1"),
    ([Dma("out", 100, 0, (64,), (1,), (1,), 1, 1), DMA], "ocm_addr", "read by the transfer of tag 1"),
    ([LATE, Alu("mov", ONE, (1,), word(64, 4), Imm(0))], "dst", "written by the transfer of tag 2"),
    ([LATE, Wait(1), Alu("mov", ONE, (1,), word(0, 4), word(64, 4))], "a", "written by the transfer of tag 2"),
    ([LATE, Store(ONE, (1,), Ocm(0, "i8", (), (), (1,)), Lrm(0, "i8", (1,)))], "dst", "read by the transfer of tag 2"),
    ([Lut(ALL, (1,), word(0, 4), Lrm(64, "i8"), word(80, 4), 16)], "index", "must be 0 to 15, found 1397"),
]


@pytest.mark.parametrize(("body", "operand", "text"), DYNAMIC)
@pytest.mark.parametrize("engine", ["fast", "step"])
def test_strict_faults(body: list[Instruction], operand: str, text: str, engine: str) -> None:
    with pytest.raises(MachineFault, match=text) as caught:
        run(*body, engine=engine)
    assert_placed(caught.value, 2 + len(body), operand, body[-1])


UNWRITTEN: list[tuple[list[Instruction], str]] = [
    ([Alu("mov", ONE, (1,), word(0, 4), word(8, 4))], "a"),
    ([Alu("mov", ONE, (2,), word(0, 4), Imm(0)), Alu("mov", ALL, (2,), word(8, 4), word(0, 4))], "a"),
    (
        [
            Alu("mov", Grid((2,), (1,)), (1,), word(0, 4), Imm(0)),
            Alu("mov", Grid((1,), (2,)), (1,), word(8, 4), word(0, 4)),
        ],
        "a",
    ),
    ([MOVE, Alu("mov", ALL, (3,), word(16, 4), word(0, 4))], "a"),
    ([MOVE, Reduce("sum", ALL, (2,), 1, word(16), word(0, 4), True)], "dst"),
    ([Load(ONE, (1,), word(0, 4), Ocm(0, "i32", (), (), (4,)))], "src"),
    ([Dma("out", 0, 0, (1,), (1,), (1,), 1, 1)], "ocm_addr"),
]


@pytest.mark.parametrize(("body", "operand"), UNWRITTEN)
def test_reads_of_unwritten_bytes(body: list[Instruction], operand: str) -> None:
    with pytest.raises(MachineFault, match="written bytes only") as caught:
        run(*body, filled=False)
    assert_placed(caught.value, len(body) - 1, operand, body[-1])
    run(*body, filled=False, strict=False)


def test_two_grids_together_may_write_what_one_reads() -> None:
    corner = [Alu("mov", grid, (1,), word(0, 4), Imm(0)) for grid in (Grid((2,), (1,)), Grid((1,), (2,)))]
    run(*corner, Alu("mov", Grid((1,), (2,)), (1,), word(8, 4), word(0, 4)), filled=False)
    with pytest.raises(MachineFault, match="written bytes only"):
        run(*corner, Alu("mov", ALL, (1,), word(8, 4), word(0, 4)), filled=False)


@pytest.mark.parametrize(
    "body",
    [
        [LATE, Wait(2), Alu("mov", ONE, (1,), word(64, 4), Imm(0))],
        [DMA, Dma("in", 64, 64, (64,), (1,), (1,), 1, 1), Wait(1), LATE, Wait(2)],
        [Dma("in", 0, 0, (8,), (4,), (4,), 2, 1), Dma("in", 0, 2, (8,), (4,), (4,), 2, 2), Wait(1), Wait(2)],
        [Dma("out", 0, 0, (64,), (1,), (1,), 1, 1), LATE, Wait(2)],
        [Alu("add", ALL, (2,), word(0, 4), word(0, 4), Imm(1)), Alu("mov", ALL, (2,), Lrm(0, "i8", (4,)), word(0, 4))],
    ],
)
def test_what_is_allowed(body: list[Instruction]) -> None:
    run(*body)


def test_inputs_are_checked() -> None:
    buffer = Buffer("x", "ext", 0, (2, 2), "i8")
    program = Program(TARGET, (Halt(),), 64, inputs=(buffer,), name="tiny")
    with pytest.raises(UserError, match="input 'x' of program 'tiny' is missing"):
        simulate(program, {})
    with pytest.raises(UserError, match="'y' is not an input of program 'tiny'. Inputs: x"):
        simulate(program, {"y": 1})
    with pytest.raises(UserError, match=r"shape must be \(2, 2\), found \(4,\)"):
        simulate(program, {"x": np.zeros(4, np.int8)})
    with pytest.raises(UserError, match="raw integers that fit i8, found float32"):
        simulate(program, {"x": np.zeros((2, 2), np.float32)})
    with pytest.raises(UserError, match="engine must be one of fast, step, found 'slow'"):
        simulate(program, {"x": np.zeros((2, 2), np.int8)}, engine="slow")
    with pytest.raises(ProgramError, match="Halt must be the last"):
        simulate(Program(TARGET, (), 64), {})
