"""Validation runs: ONNX Runtime, golden and ISS against each other on every ONNX node output, in three modes.

isolated: after each kernel its outputs are overwritten by ORT's tensors, so a row shows that kernel's own error.
segment: only quantised tensors are overwritten, the fixed-point stretches between them run free.
end to end: nothing is overwritten. Golden gets the same forcing, and must equal the ISS bit for bit.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from epu.comparison import Comparison, Yardstick, compare_node, explained, output_rows
from epu.exact_node import ExactNodes
from epu.graph import Float
from epu.metrics import DEFAULT_TOLERANCE, END_TO_END, ISOLATED, MODES, Row, Tolerance, compare
from epu.observed import Compiled, TensorMap, Tensors, encode_ort, input_lsb, node_outputs
from epu.ort_reference import OrtReference, plain_session, seconds_of_one_run
from epu.raw_tensors import encode
from epu.simulator.program import KernelSpan, Program
from epu.simulator.simulation import RunResult, simulate
from epu.simulator.taps import TapRecorder

Progress = Callable[[str, int, int], None]  # (what, done, of)

TIMED_RUNS = 3


@dataclass(frozen=True)
class Evidence:
    """All that one validation found, before it is judged.

    ``floor`` holds, per graph output, ORT against ORT with one input element moved by one LSB.
    ``seconds`` are medians of plain runs, ``ort`` on one thread without optimisation, ``iss`` without listeners.
    """

    comparisons: tuple[Comparison, ...]
    output_rows: tuple[Row, ...]
    floor: dict[str, Row]
    golden_differs: tuple[str, ...]
    run: RunResult
    raw_inputs: Tensors
    ort_version: str
    seconds: dict[str, float]


class Forcer:
    """Listener that overwrites each kernel's outputs by given raw tensors, and reports progress."""

    def __init__(self, program: Program, forced: Tensors, what: str, progress: Progress | None) -> None:
        self._forced = forced
        self._what = what
        self._count = len(program.debug.kernels)
        self._progress = progress

    def on_kernel_end(self, index: int, span: KernelSpan, state: Any) -> None:
        for buffer in span.outputs:
            if buffer.name in self._forced:
                state.write(buffer, self._forced[buffer.name].reshape(buffer.shape))
        if self._progress:
            self._progress(self._what, index + 1, self._count)


def gather(
    compiled: Compiled,
    model: onnx.ModelProto,
    inputs: Tensors,
    tolerance: Tolerance = DEFAULT_TOLERANCE,
    progress: Progress | None = None,
) -> Evidence:
    """Run ORT once, ISS and golden in the three modes, and compare every node output.

    ``inputs`` are the model's inputs by name; reals of another precision become the type that ONNX Runtime takes.
    """
    reference = OrtReference(model, compiled.program.name)
    inputs = reference.typed(inputs)
    raw = encode(compiled.program.inputs, inputs)
    ort = reference.run(inputs)
    yardstick = Yardstick(ort, TensorMap(model, compiled), ExactNodes(model, ort), tolerance)
    comparisons: list[Comparison] = []
    differing: dict[str, None] = {}
    for mode in MODES:
        iss, different = run_mode(compiled, raw, ort, mode, progress)
        comparisons += [compare_node(each, yardstick, iss, mode) for each in node_outputs(model)]
        differing.update(dict.fromkeys(different))
    run, seconds = timed_runs(compiled.program, model, raw, inputs)
    return Evidence(
        comparisons=tuple(explained(comparisons)),
        output_rows=tuple(output_rows(model, yardstick, run.outputs)),
        floor=one_lsb_floor(compiled.program, model, reference, inputs, ort),
        golden_differs=tuple(differing),
        run=run,
        raw_inputs=raw,
        ort_version=reference.version,
        seconds=seconds,
    )


def run_mode(
    compiled: Compiled, raw: Tensors, ort: Tensors, mode: str, progress: Progress | None = None
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """One observed run under a mode's forcing: the ISS tensors by name, and those in which golden differs."""
    program = compiled.program
    forced = forced_tensors(program, ort, mode)
    recorder = TapRecorder(program)
    simulate(program, dict(raw), listeners=(recorder, Forcer(program, forced, mode, progress)))
    golden = compiled.golden(raw, forced)
    observed = recorder.tensors
    return {**raw, **observed}, [name for name in observed if not _same(observed[name], golden.get(name))]


def forced_tensors(program: Program, ort: Tensors, mode: str) -> dict[str, NDArray[Any]]:
    """ORT's tensors in raw integers, for the kernel outputs that the mode overwrites."""
    if mode == END_TO_END:
        return {}
    buffers = [buffer for span in program.debug.kernels for buffer in span.outputs if buffer.name in ort]
    chosen = [each for each in buffers if mode == ISOLATED or each.decode.kind != "fx"]
    return {buffer.name: encode_ort(buffer, ort[buffer.name]) for buffer in chosen}


def one_lsb_floor(
    program: Program, model: onnx.ModelProto, reference: OrtReference, inputs: Tensors, ort: Tensors
) -> dict[str, Row]:
    """ORT against ORT with the middle element of the first float input moved by one LSB: what one flip alone does."""
    buffer = next((each for each in program.inputs if inputs[each.name].dtype.kind == "f"), None)
    if buffer is None:
        return {}
    nudged = inputs[buffer.name].copy()
    nudged.reshape(-1)[nudged.size // 2] += nudged.dtype.type(input_lsb(model, buffer))
    other = reference.run({**inputs, buffer.name: nudged})
    return {out.name: compare(ort[out.name], other[out.name], Float()) for out in model.graph.output}


def timed_runs(
    program: Program, model: onnx.ModelProto, raw: Tensors, inputs: Tensors
) -> tuple[RunResult, dict[str, float]]:
    """Plain runs of ORT and ISS in turn: the result of the ISS, and the median seconds of each."""
    session = plain_session(model)
    result = simulate(program, dict(raw))
    seconds_of_one_run(session, inputs)
    pairs = [(seconds_of_one_run(session, inputs), simulate(program, dict(raw)).seconds) for _ in range(TIMED_RUNS)]
    ort, iss = zip(*pairs, strict=True)
    return result, {"ort": statistics.median(ort), "iss": statistics.median(iss)}


def _same(iss: NDArray[Any], golden: NDArray[Any] | None) -> bool:
    return golden is not None and iss.size == golden.size and np.array_equal(iss.reshape(-1), golden.reshape(-1))
