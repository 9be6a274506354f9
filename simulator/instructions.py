"""The instruction set: every operand and instruction under one name, and the opcode table."""

from __future__ import annotations

from epu.simulator.control import Halt, Wait
from epu.simulator.elementwise import Alu, Lut
from epu.simulator.instruction import Cost, Instruction
from epu.simulator.matrix import Mac, MacLocal
from epu.simulator.operands import SIZES, Grid, Imm, Lrm, Ocm, Source
from epu.simulator.reductions import AllReduce, Reduce
from epu.simulator.transfers import Dma, Load, Store

INSTRUCTIONS: tuple[type[Instruction], ...] = (
    Dma,
    Wait,
    Load,
    Store,
    Alu,
    Lut,
    Reduce,
    AllReduce,
    Mac,
    MacLocal,
    Halt,
)
BY_OPCODE: dict[int, type[Instruction]] = {each.opcode: each for each in INSTRUCTIONS}
assert len(BY_OPCODE) == len(INSTRUCTIONS), "two instructions share an opcode"

__all__ = [
    "BY_OPCODE",
    "INSTRUCTIONS",
    "SIZES",
    "AllReduce",
    "Alu",
    "Cost",
    "Dma",
    "Grid",
    "Halt",
    "Imm",
    "Instruction",
    "Load",
    "Lrm",
    "Lut",
    "Mac",
    "MacLocal",
    "Ocm",
    "Reduce",
    "Source",
    "Store",
    "Wait",
]
