"""A compiled module by hand: x → QuantizeLinear → DequantizeLinear → Relu → y, two kernels, one tap, no compiler."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from epu.graph import Fixed, Graph, Node, Quantized, Tensor, TensorType
from epu.occupancy import MemoryMap
from epu.reports import Peak
from epu.simulator.instructions import Alu, Dma, Grid, Halt, Imm, Instruction, Load, Lrm, Ocm, Store, Wait
from epu.simulator.machine import Machine
from epu.simulator.program import Buffer, DebugMap, Decode, KernelSpan, Program, Tap

Tensors = Mapping[str, NDArray[Any]]

SIZE, FRAC, SCALE = 8, 8, 0.5
SHAPE = (1, SIZE)
SHIFT = 7  # 2**FRAC * SCALE = 2**SHIFT
ONE, LOOPS = Grid((1,), (1,)), (SIZE,)
FX, Q = Decode("fx", frac=FRAC), Decode("q", scale=(SCALE,), zero_point=(0,))

X = Buffer("x", "ext", 0, SHAPE, "i32", FX)
Y = Buffer("y", "ext", 64, SHAPE, "i32", FX)
Q_OCM = Buffer("q", "ocm", 64, SHAPE, "i8", Q)
Y_OCM = Buffer("y", "ocm", 128, SHAPE, "i32", FX)


def words(addr: int) -> Lrm:
    return Lrm(addr, "i32", (4,))


def codes(addr: int) -> Lrm:
    return Lrm(addr, "i8", (1,))


QUANTIZE: tuple[Instruction, ...] = (
    Dma("in", 0, 0, (SIZE,), (4,), (4,), 4, 1),
    Wait(1),
    Load(ONE, LOOPS, words(0), Ocm(0, "i32", (0,), (0,), (4,))),
    Alu("rshr", ONE, LOOPS, codes(64), words(0), Imm(SHIFT), None, None, True),
    Store(ONE, LOOPS, Ocm(64, "i8", (0,), (0,), (1,)), codes(64)),
)
RELU: tuple[Instruction, ...] = (
    Load(ONE, LOOPS, codes(128), Ocm(64, "i8", (0,), (0,), (1,))),
    Alu("shl", ONE, LOOPS, words(192), codes(128), Imm(SHIFT), None, None, False),
    Alu("max", ONE, LOOPS, words(256), words(192), Imm(0), None, None, False),
    Store(ONE, LOOPS, Ocm(128, "i32", (0,), (0,), (4,)), words(256)),
)
OUT: tuple[Instruction, ...] = (Dma("out", 64, 128, (SIZE,), (4,), (4,), 4, 2), Wait(2), Halt())


def tiny_program(quantize: tuple[Instruction, ...] = QUANTIZE) -> Program:
    """The program; another first kernel of the same length makes a wrong one."""
    middle, end = len(quantize), len(quantize) + len(RELU)
    spans = (
        KernelSpan("quantize", ("quantize",), 0, middle, 0, (X,), (Q_OCM,)),
        KernelSpan("relu", ("dequantize", "relu"), middle, end, 1000, (Q_OCM,), (Y_OCM,)),
    )
    tap = Tap("d", middle + 1, ONE, LOOPS, words(192), SHAPE, 0, (0,), (0,), (1,), FX)
    return Program(
        machine=Machine.for_product("QC-N"),
        code=(*quantize, *RELU, *OUT),
        ext_bytes=128,
        inputs=(X,),
        outputs=(Y,),
        debug=DebugMap(spans, (tap,)),
        name="tiny",
    )


def tiny_model() -> onnx.ModelProto:
    """The ONNX model that the program stands for."""
    scale = helper.make_tensor("s", TensorProto.FLOAT, [], [SCALE])
    zero = helper.make_tensor("z", TensorProto.INT8, [], [0])
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantize"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "dequantize"),
        helper.make_node("Relu", ["d"], ["y"], "relu"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(SHAPE)) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "tiny", values[:1], values[1:], [scale, zero])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def tiny_graph() -> Graph:
    """The typed graph."""
    code = Quantized("int8", (SCALE,), (0,))
    types: dict[str, TensorType] = {"x": Fixed(FRAC), "q": code, "d": Fixed(FRAC), "y": Fixed(FRAC)}
    nodes = [
        Node("quantize", "QuantizeLinear", ["x"], ["q"]),
        Node("dequantize", "DequantizeLinear", ["q"], ["d"]),
        Node("relu", "Relu", ["d"], ["y"]),
    ]
    tensors = {name: Tensor(name, SHAPE, kind, range=(-4.0, 4.0)) for name, kind in types.items()}
    return Graph("tiny", nodes, tensors, ["x"], ["y"])


@dataclass
class TinyModule:
    """What compile_graph returns, by hand."""

    program: Program = field(default_factory=tiny_program)
    graph: Graph = field(default_factory=tiny_graph)
    seconds: dict[str, float] = field(default_factory=lambda: {"build_tir": 0.25})
    peak: Peak = Peak(256, 320, 0)
    gmacs: float = 1e-6
    memory: MemoryMap = MemoryMap()
    kernels: tuple[()] = ()

    def golden(self, inputs: Tensors, force: Tensors | None = None) -> dict[str, NDArray[Any]]:
        forced = force or {}
        quantized = np.clip(np.rint(inputs["x"] / 2**SHIFT), -128, 127).astype(np.int8)
        dequantized = forced.get("q", quantized).astype(np.int32) << SHIFT
        return {"q": quantized, "d": dequantized, "y": np.maximum(dequantized, 0)}


def use_module(monkeypatch: pytest.MonkeyPatch, module: TinyModule) -> None:
    """Have the compiler return ``module``."""

    def compile_graph(graph: Graph, machine: object, *, rounding: str, name: str) -> TinyModule:
        assert graph.outputs == ["y"]
        return module

    fake = ModuleType("epu.compiler")
    fake.compile_graph = compile_graph  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "epu.compiler", fake)
