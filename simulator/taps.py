"""Assemble every observable tensor of a run from the debug map."""

from __future__ import annotations

from typing import Any

import numpy as np

from epu.simulator.fixed_point import NUMPY_DTYPE
from epu.simulator.instruction import Instruction
from epu.simulator.memory import Array
from epu.simulator.program import Decode, Derived, KernelSpan, Moved, Program, Tap


class TapRecorder:
    """Listener that records each tapped tensor and the outputs of each kernel, as raw integers.

    ``tensors`` and ``decodes`` are by tensor name. Elements that no tap has delivered stay 0.
    """

    def __init__(self, program: Program) -> None:
        self.tensors: dict[str, Array] = {}
        self.decodes: dict[str, Decode] = {}
        self._taps: dict[int, list[Tap]] = {}
        self._derived: dict[int, list[Derived]] = {}
        for derived in program.debug.derived:
            self._derived.setdefault(derived.kernel, []).append(derived)
        self._moved: dict[int, list[Moved]] = {}
        for moved in program.debug.moved:
            self._moved.setdefault(moved.kernel, []).append(moved)
        for tap in program.debug.taps:
            self._taps.setdefault(tap.pc, []).append(tap)

    def on_instruction(self, pc: int, instruction: Instruction, state: Any) -> None:
        """Read what taps want after ``pc``."""
        for tap in self._taps.get(pc, ()):
            self._record(tap, state)

    def on_kernel_end(self, index: int, span: KernelSpan, state: Any) -> None:
        """Read the kernel's outputs."""
        for buffer in span.outputs:
            self.tensors[buffer.name] = state.read(buffer)
            self.decodes[buffer.name] = buffer.decode
        for derived in self._derived.get(index, ()):
            codes = state.read(
                next(buffer for buffer in (*span.inputs, *span.outputs) if buffer.name == derived.source)
            )
            found = np.array(derived.table, np.int32)[codes.astype(np.int64) - derived.low]
            if derived.columns is None:
                self.tensors[derived.tensor] = found
            else:
                whole = self.tensors.setdefault(derived.tensor, np.zeros(derived.columns.shape, np.int32))
                derived.columns.of(whole)[...] = found.reshape(derived.columns.rows, -1)
            self.decodes[derived.tensor] = derived.decode
        for moved in self._moved.get(index, ()):
            found = self.tensors[moved.source].reshape(moved.seen).transpose(moved.order)
            self.tensors[moved.tensor], self.decodes[moved.tensor] = found.reshape(moved.shape), moved.decode

    def _record(self, tap: Tap, state: Any) -> None:
        tensor = self.tensors.get(tap.tensor)
        if tensor is None:
            tensor = self.tensors[tap.tensor] = np.zeros(tap.shape, NUMPY_DTYPE[tap.operand.dtype])
            self.decodes[tap.tensor] = tap.decode
        values = state.read_lrm(tap.grid, tap.loops, tap.operand)
        strides = [*_or_zero(tap.row_strides, tap.grid.rows), *_or_zero(tap.col_strides, tap.grid.cols), *tap.strides]
        size = tensor.itemsize
        flat = tensor.reshape(-1)
        view: Array = np.ndarray(values.shape, tensor.dtype, flat, tap.offset * size, [each * size for each in strides])
        view[...] = values


def _or_zero(strides: tuple[int, ...], digits: tuple[int, ...]) -> tuple[int, ...]:
    return strides or (0,) * len(digits)
