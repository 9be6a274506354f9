"""The reason behind each element in which the ISS differs from ONNX Runtime, by evidence.

Isolated, each kernel has ORT's tensors as operands, so the exact result of an element follows from ORT's own codes and the
model's scales; docs/validation.md says what each reason demands. What no evidence covers is ``unexplained``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.custom_ops import OP_TYPE as CUSTOM_OP
from epu.exact_node import ExactNodes
from epu.graph import Fixed, Quantized, TensorType
from epu.metrics import ISOLATED, Deviation, is_code
from epu.observed import Compiled, NodeOutput, TensorMap, Tensors
from epu.operators.row import EXACT, ORT
from epu.reasons_bounds import Case, bound_of, float32_floor, is_table, repetition_of
from epu.reasons_codes import Elements, explain_codes
from epu.reasons_contrib import Coded
from epu.reasons_kernel import Kernels, Reading
from epu.reasons_names import Reason, counted
from epu.reasons_reals import UNIT32, Judgement, explain_fixed, explain_sums
from epu.reasons_region import Region, Unknown
from epu.reasons_terms import Array, Terms, along, reals_of

INVERSE_ERROR = 2.0**-24  # codes by which QuantizeLinear of a fixed-point number may miss a tie
RESIZE_ERROR = 2.0**-20  # codes, of weights in Q30


@dataclass(frozen=True)
class Found:
    """What the isolated run showed of one tensor: the values of the ISS, a reason for each wrong element."""

    iss: Array
    reasons: NDArray[np.int8]  # of the tensor's shape, -1 where nothing differs

    @property
    def red(self) -> bool:
        return bool(np.any(self.reasons == Reason.UNEXPLAINED))


class Explainer:
    """Gives reasons for one validation; the isolated mode has to be explained first."""

    def __init__(
        self, compiled: Compiled, places: TensorMap, exact: ExactNodes, ort: Tensors, rounding: str = EXACT
    ) -> None:
        self._kernels = Kernels(compiled, places, exact.nodes, ort)
        self._places, self._exact, self._ort = places, exact, ort
        self._float32 = rounding == ORT
        self._found: dict[str, Found] = {}

    def explain(
        self, output: NodeOutput, deviation: Deviation, value: Array, kind: TensorType, mode: str, iss: Tensors
    ) -> dict[str, int]:
        """Wrong elements per reason. ``value``: the raw integers of the ISS in ORT's shape; ``iss``: all of that run."""
        wrong = deviation.steps != 0
        if not wrong.any():
            return {}
        if mode == ISOLATED:
            reasons = self._isolated(output, deviation, value, kind, iss, wrong)
            whole = np.full(value.shape, -1, np.int8)
            whole[wrong] = reasons
            self._found[output.tensor] = Found(value, whole)
            return counted(reasons)
        return self.explain_free(output.tensor, deviation, value)

    def explain_free(self, tensor: str, deviation: Deviation, value: Array) -> dict[str, int]:
        """The same for a mode that does not overwrite everything, once the isolated mode is explained."""
        return counted(self._later(tensor, value, deviation.steps != 0))

    def _later(self, tensor: str, value: Array, wrong: NDArray[np.bool_]) -> NDArray[np.int8]:
        """Other modes feed the same kernels: the same value has the same reason, another one came from upstream."""
        found = self._found.get(tensor)
        if found is None:
            return np.full(np.count_nonzero(wrong), Reason.UPSTREAM, np.int8)
        fresh = Reason.UNEXPLAINED if found.red else Reason.UPSTREAM
        same = (value == found.iss) & (found.reasons >= 0)
        return np.where(same, found.reasons, np.int8(fresh))[wrong]

    def _isolated(
        self,
        output: NodeOutput,
        deviation: Deviation,
        value: Array,
        kind: TensorType,
        iss: Tensors,
        wrong: NDArray[np.bool_],
    ) -> NDArray[np.int8]:
        if output.op.startswith(CUSTOM_OP):  # its kernels are compared with its own reference while compiling
            return np.full(np.count_nonzero(wrong), Reason.CUSTOM, np.int8)
        source = self._places.source_of(output.tensor, iss)
        tensor = source if source in self._ort else output.tensor
        if tensor not in self._exact.nodes.by_output:  # a view of an input of the model, whose word may clip it
            clipped = deviation.at_limit & (np.abs(deviation.ort) > np.abs(deviation.iss))
            return np.where(clipped[wrong], Reason.CLIPPED, Reason.UNEXPLAINED).astype(np.int8)
        reading = self._kernels.reading(output, source, iss)
        region = Region(self._exact.nodes, reading.leaf, self._kernels.as_constant if reading.fixed else None)
        deviation, wrong = deviation.shaped(self._ort[tensor].shape), wrong.reshape(self._ort[tensor].shape)
        try:
            with np.errstate(all="ignore"):  # what is not finite is not within any bound
                if is_code(kind):
                    return self._codes(tensor, region, reading, deviation, kind, wrong)
                if isinstance(kind, Fixed):
                    return explain_fixed(deviation, self._judgement(tensor, region, reading, kind), wrong)
                return self._integers(tensor, region, deviation, wrong)
        except Unknown:
            return np.full(np.count_nonzero(wrong), Reason.UNEXPLAINED, np.int8)

    def _codes(
        self,
        tensor: str,
        region: Region,
        reading: Reading,
        deviation: Deviation,
        kind: TensorType,
        wrong: NDArray[np.bool_],
    ) -> NDArray[np.int8]:
        assert isinstance(kind, Quantized)
        rounded = self._rounded(tensor, region, kind)
        step, zero = deviation.step[wrong], rounded_zero(rounded, deviation.ort.shape)[wrong]
        held = (
            deviation.iss[wrong] / step if self._ort[tensor].dtype.kind != "f" else deviation.iss[wrong] / step + zero
        )
        limits = np.iinfo(kind.dtype)
        places = np.argwhere(wrong)
        at = Elements(places, wrong.shape, held, deviation.grid[wrong], (limits.min, limits.max))
        if reading.fixed and self._exact.nodes.by_output[tensor].op_type == "QuantizeLinear":
            return self._coded_from_fixed(tensor, rounded, at)
        slack, table = self._slack(region, rounded, at)
        return explain_codes(rounded, at, slack, table=table, float32=self._float32)

    def _rounded(self, tensor: str, region: Region, kind: Quantized) -> Coded:
        """What the node rounds to codes; codes themselves where it only moves or weighs them."""
        if self._ort[tensor].dtype.kind == "f":
            scale, zero = np.asarray(kind.scale, np.float32), np.asarray(kind.zero_point)
            return Coded(region.made(tensor), scale, zero, kind.axis or 0)
        coded = region.coded(tensor)
        return coded if coded is not None else Coded(region.made(tensor), np.ones(1, np.float32), np.zeros(1))

    def _slack(self, region: Region, rounded: Coded, at: Elements) -> tuple[NDArray[np.float64], bool]:
        """Codes by which the kernel's own value may be wrong before it is rounded, and whether a table is why."""
        scale = at.of(along(np.asarray(rounded.scale, np.float64), rounded.axis, len(at.shape)))
        names = [node.op_type for node in region.ops]
        if "Softmax" in names:
            node = region.ops[names.index("Softmax")]
            value = np.asarray(reals_of(rounded.value))
            unit = self._kernels.unit(node.output[0])
            bound = bound_of(Case(node, (None,), value, unit, (0.0,), (False,), exact_exponentials=True))
            return at.of(bound) / scale + INVERSE_ERROR, True
        if "Resize" in names:
            return np.full(len(at.iss), RESIZE_ERROR), False
        return np.zeros(len(at.iss)), False

    def _coded_from_fixed(self, tensor: str, rounded: Coded, at: Elements) -> NDArray[np.int8]:
        """QuantizeLinear of a fixed-point tensor: right on the number it read; then ORT's rounding, or that number's."""
        source = self._exact.nodes.by_output[tensor].input[0]
        scale = at.of(along(np.asarray(rounded.scale, np.float64), rounded.axis, len(at.shape)))
        exact = at.of(self._ort[source]) / scale
        shift = np.abs(at.of(reals_of(rounded.value)) / scale - exact)
        clipped = self._kernels.clipped(source)
        read = 0.5 * self._kernels.unit(source) / scale
        slack = np.full(len(at.iss), INVERSE_ERROR)
        reasons = explain_codes(rounded, at, slack, float32=self._float32, drift=shift)
        own = explain_codes(
            Coded(self._ort[source].astype(np.float64), rounded.scale, rounded.zero, rounded.axis),
            Elements(at.places, at.shape, at.ort, at.ort, at.limits),
            np.zeros(len(at.iss)),
        )
        encoded = own != Reason.UNEXPLAINED  # ORT is right on its own number, which the word rounds or clips
        known = reasons != Reason.UNEXPLAINED
        reasons[known & encoded & (shift <= read * (1 + 1e-9))] = Reason.FIXED
        reasons[known & (shift > read * (1 + 1e-9))] = Reason.CLIPPED if clipped else Reason.UNEXPLAINED
        return reasons

    def _judgement(self, tensor: str, region: Region, reading: Reading, kind: Fixed) -> Judgement:
        value = region.made(tensor)
        exact = np.asarray(reals_of(value), np.float64)
        unit = 2.0**-kind.frac
        node = self._exact.nodes.by_output[tensor]
        if exact.size not in (1, self._ort[tensor].size):  # ONNX's reference counts the windows of ceil_mode otherwise
            raise Unknown(f"{node.name}: the exact value has shape {exact.shape}, ORT's {self._ort[tensor].shape}")
        if not reading.fixed:
            soft = node.op_type == "Softmax"
            case = Case(node, (None,), exact, unit, (0.0,), (False,), exact_exponentials=True)
            bound = bound_of(case) if soft else 0.5 * unit + self._factor_share(value) * np.abs(exact)
            return Judgement(exact, exact, np.asarray(bound + 2.0**-50 * np.abs(exact)), soft)
        own = self._exact.value(tensor)
        if own is None:
            raise Unknown(f"{node.name} has no float64 form on ORT's operands")
        clipped = any(self._kernels.clipped(name) for name in node.input)
        case = self._case(node, region, reading, exact, unit)
        repeats = repetition_of(case) if self._float32 else None
        return Judgement(
            exact, own, bound_of(case), is_table(node.op_type), clipped, float32_floor(node.op_type), repeats
        )

    def _factor_share(self, value: Terms | Array) -> float:
        """What one float32 factor for several scales adds to a sum, and ``rounding="ort"`` to a dequantised number."""
        combined = isinstance(value, tuple) and any(part.combined for part in value)
        return (2 * UNIT32 if self._float32 else 0.0) + (2 * UNIT32 if combined else 0.0)

    def _case(self, node: Any, region: Region, reading: Reading, exact: Array, unit: float) -> Case:
        values = [region.operand(name) if name else None for name in node.input]
        operands = [None if value is None else reals_of(value) for value in values]
        coded = [isinstance(value, tuple) for value in values]
        units = [self._kernels.unit_of(name, self._exact.nodes.constant(name)) for name in node.input]
        coarse = [name in reading.inner for name in node.input]
        constant = [self._exact.nodes.constant(name) is not None for name in node.input]
        return Case(node, operands, exact, unit, units, coarse, constant, coded)

    def _integers(
        self, tensor: str, region: Region, deviation: Deviation, wrong: NDArray[np.bool_]
    ) -> NDArray[np.int8]:
        """Sums of a folded group; masks and plain integers, which are exact for what the kernel read."""
        value = region.made(tensor)
        if isinstance(value, tuple):
            return explain_sums(deviation, value, wrong)
        right = np.broadcast_to(value, wrong.shape)[wrong] == deviation.iss[wrong]
        return np.where(right, Reason.FIXED, Reason.UNEXPLAINED).astype(np.int8)


def rounded_zero(rounded: Coded, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Zero points for each element."""
    return np.broadcast_to(along(np.asarray(rounded.zero, np.float64), rounded.axis, len(shape)), shape)
