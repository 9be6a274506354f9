"""Quantised ONNX nodes by hand, what ONNX Runtime makes of them, and a program that only says which kernel made what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from epu.exact_node import ExactNodes
from epu.graph import Graph, Quantized, Tensor
from epu.metrics import ISOLATED, measure
from epu.observed import NodeOutput, TensorMap
from epu.ort_reference import OrtReference
from epu.reasons import Explainer
from epu.simulator.instructions import Halt
from epu.simulator.machine import Machine
from epu.simulator.program import Buffer, DebugMap, Decode, KernelSpan, Program

Array = NDArray[Any]
Rounding = Callable[[Fraction], int]
CODES = (-128, 127)
RAW = {"int8": "i8", "uint8": "u8"}


@dataclass
class Shown:
    """A compiled module that explains itself by its debug map alone."""

    program: Program
    graph: Graph

    def golden(self, inputs: Any, force: Any = None) -> dict[str, Array]:
        return {}


@dataclass
class Case:
    """One kernel of quantised ONNX nodes that ends in ``y``.

    ``exact`` gives, from the codes of the inputs and the constants, the number that ``y`` is rounded from, without zero
    point: integers and the float32 factors of docs/arithmetic.md, as fractions.
    """

    nodes: list[onnx.NodeProto]
    inputs: dict[str, Array]
    constants: dict[str, Array]
    exact: Callable[[dict[str, Array]], Any]
    scale: float = 0.0
    zero: int = 0
    scales: dict[str, tuple[float, int]] = field(default_factory=dict)
    opset: int = 17

    @property
    def model(self) -> onnx.ModelProto:
        kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in self.inputs.items()}
        values = [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in self.inputs.items()]
        output = [helper.make_tensor_value_info("y", TensorProto.INT8, None)]
        weights = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "case", values, output, weights)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def codes(self, rounding: Rounding, constants: dict[str, Array] | None = None) -> Array:
        """``y`` under a rounding."""
        exact = np.asarray(self.exact({**self.inputs, **(constants or self.constants)}), object)
        found = [min(max(rounding(each) + self.zero, CODES[0]), CODES[1]) for each in exact.ravel()]
        return np.array(found, np.int8).reshape(exact.shape)


def half_even(number: Fraction) -> int:
    return round(number)


def half_up(number: Fraction) -> int:
    return int((number + Fraction(1, 2)) // 1)


def truncated(number: Fraction) -> int:
    return int(number // 1)


def off_by_one(number: Fraction) -> int:
    return round(number) + 1


def slightly_scaled(number: Fraction) -> int:
    """A multiplier that is wrong in its tenth bit."""
    return round(number * Fraction(1025, 1024))


def fractions(values: Any) -> Any:
    """Integers or float32 numbers as fractions."""
    return np.vectorize(lambda each: Fraction(float(each)), otypes=[object])(np.asarray(values))


def f32(number: Any) -> np.float32:
    return np.float32(number)


def ort_of(case: Case) -> dict[str, Array]:
    return OrtReference(case.model).run(case.inputs)


def reasons_of(case: Case, codes: Array, ort: dict[str, Array], rounding: str = "exact") -> dict[str, int]:
    """What the mismatches of ``codes`` are put down to."""
    model = case.model
    compiled = shown(case, ort)
    places, exact = TensorMap(model, compiled), ExactNodes(model, ort)
    explainer = Explainer(compiled, places, exact, ort, rounding)
    last = NodeOutput(case.nodes[-1].name, case.nodes[-1].op_type, 0, "y")
    kind = places.type_of("y")
    deviation = measure(ort["y"], codes, kind)
    return explainer.explain(last, deviation, codes, kind, ISOLATED, {**case.inputs, "y": codes})


def shown(case: Case, ort: dict[str, Array]) -> Shown:
    buffers = tuple(_buffer(name, array, *case.scales.get(name, (1.0, 0))) for name, array in case.inputs.items())
    out = _buffer("y", ort["y"], case.scale or 1.0, case.zero)
    span = KernelSpan("k", tuple(node.name for node in case.nodes), 0, 1, 0, buffers, (out,))
    program = Program(Machine.for_product("QC-N"), (Halt(),), 64, (), buffers, (out,), DebugMap((span,), ()), "case")
    kind = Quantized(str(ort["y"].dtype), (case.scale or 1.0,), (case.zero,))
    tensors = {"y": Tensor("y", ort["y"].shape, kind)}
    return Shown(program, Graph("case", [], tensors, [], ["y"]))


def _buffer(name: str, array: Array, scale: float, zero: int) -> Buffer:
    return Buffer(name, "ext", 0, array.shape, RAW[str(array.dtype)], Decode("q", scale=(scale,), zero_point=(zero,)))
