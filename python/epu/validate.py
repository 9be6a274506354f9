"""Validation runs: ONNX Runtime, golden and ISS against each other on every ONNX node output, in three modes.

isolated: after each kernel its outputs are overwritten by ORT's tensors, so a row shows that kernel's own error.
segment: only quantised tensors are overwritten, the fixed-point stretches between them run free.
end to end: nothing is overwritten. Golden gets the same forcing, and must equal the ISS bit for bit.
A stage of the host gets ORT's tensors in the isolated mode, in the others what the stages before it made.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.comparison import Comparison, Yardstick, compare_node, compare_output
from epu.custom_bodies import open_chain
from epu.exact_node import ExactNodes
from epu.graph import Float
from epu.host_rows import compare_host, compare_host_output
from epu.metrics import DEFAULT_TOLERANCE, END_TO_END, ISOLATED, MODES, SEGMENT, Row, Tolerance, compare
from epu.observed import NodeOutput, TensorMap, Tensors, encode_ort, input_lsb, node_outputs, with_viewed
from epu.operators.row import EXACT
from epu.ort_reference import OrtReference, plain_session, seconds_of_one_run
from epu.reasons import Explainer
from epu.simulator.program import Buffer, KernelSpan, Program
from epu.simulator.simulation import RunResult
from epu.simulator.taps import TapRecorder
from epu.stages import Chain, EpuStage, HostStage
from epu.tensor_facts import TensorFacts, facts_of

Progress = Callable[[str, int, int], None]  # (what, done, of)

TIMED_RUNS = 3
MASK_SATURATES = "mask saturates"


@dataclass(frozen=True)
class Evidence:
    """All that one validation found, before it is judged.

    ``floor`` holds, per graph output, ORT against ORT with one input element moved by one LSB.
    ``seconds`` are medians of plain runs, ``ort`` on one thread without optimisation, ``iss`` without listeners.
    ``placement`` has a row per ONNX node: where it ran.
    """

    comparisons: tuple[Comparison, ...]
    output_rows: tuple[Row, ...]
    floor: dict[str, Row]
    golden_differs: tuple[str, ...]
    run: RunResult
    raw_inputs: Tensors
    ort_version: str
    seconds: dict[str, float]
    placement: Sequence[dict[str, Any]] = ()
    values: dict[str, TensorFacts] = field(default_factory=dict)


@dataclass(frozen=True)
class Counted:
    """The mode of an observed run and its progress: kernels ``before`` this stage, ``of`` all stages."""

    mode: str
    before: int
    of: int
    progress: Progress | None

    def report(self, done: int) -> None:
        if self.progress:
            self.progress(self.mode, self.before + done, self.of)


class Forcer:
    """Listener that overwrites each kernel's outputs by given raw tensors, and reports progress."""

    def __init__(self, forced: Tensors, count: Counted) -> None:
        self._forced = forced
        self._count = count

    def on_kernel_end(self, index: int, span: KernelSpan, state: Any) -> None:
        for buffer in span.outputs:
            if buffer.name in self._forced:
                state.write(buffer, self._forced[buffer.name].reshape(buffer.shape))
        self._count.report(index + 1)


@dataclass(frozen=True)
class Observed:
    """What one stage showed in one mode: raw integers of a program or tensors of the host by name, and where golden
    differs."""

    tensors: Tensors
    outputs: Tensors
    golden_differs: tuple[str, ...] = ()


def gather(
    chain: Chain,
    inputs: Tensors,
    tolerance: Tolerance = DEFAULT_TOLERANCE,
    progress: Progress | None = None,
    name: str = "model",
    rounding: str = EXACT,
) -> Evidence:
    """Run ORT once, ISS and golden in the three modes, and compare every node output.

    ``inputs`` are the model's inputs by name; reals of another precision become the type that ONNX Runtime takes. Of a
    custom operator that is a composition, the nodes of its body that the program shows are compared too.
    """
    chain, inner = open_chain(chain)
    reference = OrtReference(chain.model, name)
    inputs = reference.typed(inputs)
    raw = chain.raw_inputs(inputs)
    ort = reference.run(inputs)
    judge = Judge.of(chain, ort, tolerance, rounding)
    comparisons: list[Comparison] = []
    differing: dict[str, None] = {}
    for mode in MODES:
        seen = run_mode(chain, inputs, ort, mode, progress)
        found = [judge.compare(each, seen, mode) for each in node_outputs(chain.model)]
        comparisons += [each for each in found if each.is_compared or each.output.node not in inner]
        differing.update(dict.fromkeys(name for each in seen for name in each.golden_differs))
    run, seconds = timed_runs(chain, inputs)
    return Evidence(
        comparisons=tuple(comparisons),
        output_rows=tuple(judge.output_row(value.name, run.outputs) for value in chain.model.graph.output),
        floor=one_lsb_floor(chain, reference, inputs, ort),
        golden_differs=tuple(differing),
        run=run,
        raw_inputs=raw,
        ort_version=reference.version,
        seconds=seconds,
        values=facts_of(judge.owned(seen)),  # the last mode is the free run
    )


@dataclass(frozen=True)
class Judge:
    """Compares each node output with ORT's by the stage that computes it."""

    chain: Chain
    ort: Tensors
    tolerance: Tolerance
    yardsticks: dict[int, Yardstick]
    owners: dict[str, int]

    @classmethod
    def of(cls, chain: Chain, ort: Tensors, tolerance: Tolerance, rounding: str = EXACT) -> Judge:
        exact = ExactNodes(chain.model, ort)
        places = {stage.index: TensorMap(stage.model, stage.compiled) for stage in chain.epu}
        yardsticks = {}
        for stage in chain.epu:
            place = places[stage.index]
            seen = floored(ort, place)
            reasons = Explainer(stage.compiled, place, exact, seen, rounding)
            yardsticks[stage.index] = Yardstick(seen, place, exact, tolerance, reasons)
        # a node that depends on no input may be in several stages: any of them shows it
        owners = {name: stage.index for stage in chain.stages for n in stage.model.graph.node for name in n.output}
        return cls(chain, ort, tolerance, yardsticks, owners)

    def compare(self, output: NodeOutput, seen: Sequence[Observed], mode: str) -> Comparison:
        index = self.owners.get(output.tensor, self.chain.epu[0].index)
        tensors = seen[index].tensors
        if index in self.yardsticks:
            return self._noted(compare_node(output, self.yardsticks[index], tensors, mode), self.yardsticks[index])
        return compare_host(output, self.ort[output.tensor], tensors[output.tensor], mode, self.tolerance)

    def _noted(self, found: Comparison, yardstick: Yardstick) -> Comparison:
        """Says so where "minus infinity" is compared as the lowest value of its word."""
        floor = yardstick.places.floor_of(found.output.tensor)
        if floor is not None and found.row["Comment"] == "-" and np.any(self.ort[found.output.tensor] < floor):
            found.row["Comment"] = MASK_SATURATES
        return found

    def owned(self, seen: Sequence[Observed]) -> Tensors:
        """Each tensor as the stage that makes it holds it."""
        every = [(name, array, each) for each in seen for name, array in each.tensors.items()]
        return {name: array for name, array, each in every if seen[self.owners.get(name, 0)] is each}

    def output_row(self, name: str, outputs: Tensors) -> Row:
        """The row of one output of the model in the free run."""
        index = self.owners.get(name, self.chain.epu[0].index)
        if index in self.yardsticks:
            return compare_output(name, self.yardsticks[index], outputs)
        return compare_host_output(name, self.ort[name], outputs[name], self.tolerance)


def floored(ort: Tensors, places: TensorMap) -> Tensors:
    """ORT's tensors; "minus infinity" in a mask before a softmax is the lowest value of the ISS word that stands for it."""
    floors = {name: floor for name in ort if (floor := places.floor_of(name)) is not None}
    return {**ort, **{name: np.maximum(ort[name], ort[name].dtype.type(floor)) for name, floor in floors.items()}}


def run_mode(
    chain: Chain, inputs: Tensors, ort: Tensors, mode: str, progress: Progress | None = None
) -> list[Observed]:
    """One observed run of every stage under a mode's forcing."""
    values, seen = dict(inputs), []
    kernels = sum(len(stage.program.debug.kernels) for stage in chain.epu)
    done = 0
    for stage in chain.stages:
        if isinstance(stage, HostStage):
            seen.append(_run_host(stage, values, ort, mode))
        else:
            seen.append(_run_stage(stage, values, ort, Counted(mode, done, kernels, progress)))
            done += len(stage.program.debug.kernels)
        values.update(seen[-1].outputs)
    return seen


def _run_host(stage: HostStage, values: Tensors, ort: Tensors, mode: str) -> Observed:
    """In segment mode its floats are handed on as they are, like fixed point."""
    tensors = stage.observe(values)
    names = [each.name for each in stage.model.graph.output]
    free = {name for name in names if mode == END_TO_END or (mode == SEGMENT and tensors[name].dtype.kind == "f")}
    return Observed(tensors, {name: tensors[name] if name in free else ort[name] for name in names})


def _run_stage(stage: EpuStage, values: Tensors, ort: Tensors, count: Counted) -> Observed:
    """The ISS tensors by name, and those in which golden differs."""
    program, raw = stage.program, stage.encode(values)
    forced = forced_tensors(program, with_viewed(stage.compiled, ort), count.mode)
    recorder = TapRecorder(program)
    result = stage.run(raw, (recorder, Forcer(forced, count)))
    golden = stage.compiled.golden(raw, forced)
    observed = recorder.tensors
    different = tuple(name for name in observed if not _same(observed[name], golden.get(name)))
    return Observed({**raw, **observed}, _handed_on(stage, result.outputs, ort, count.mode), different)


def _handed_on(stage: EpuStage, outputs: Tensors, ort: Tensors, mode: str) -> Tensors:
    """What later stages read of a program's outputs: ORT's tensors where the mode overwrites them."""
    forced = {
        each.name: ort[each.name] for each in stage.program.outputs if _is_forced(each, mode) and each.name in ort
    }
    return {**stage.decode(outputs), **forced}


def _is_forced(buffer: Buffer, mode: str) -> bool:
    return mode == ISOLATED or (mode == SEGMENT and buffer.decode.kind != "fx")


def forced_tensors(program: Program, ort: Tensors, mode: str) -> dict[str, NDArray[Any]]:
    """ORT's tensors in raw integers, for the kernel outputs that the mode overwrites."""
    buffers = [buffer for span in program.debug.kernels for buffer in span.outputs if buffer.name in ort]
    return {each.name: encode_ort(each, ort[each.name]) for each in buffers if _is_forced(each, mode)}


def one_lsb_floor(chain: Chain, reference: OrtReference, inputs: Tensors, ort: Tensors) -> dict[str, Row]:
    """ORT against ORT with the middle element of the first float input moved by one LSB: what one flip alone does."""
    buffers = [each for each in chain.inputs.values() if isinstance(each, Buffer)]
    buffer = next((each for each in buffers if inputs[each.name].dtype.kind == "f"), None)
    if buffer is None:
        return {}
    nudged = inputs[buffer.name].copy()
    nudged.reshape(-1)[nudged.size // 2] += nudged.dtype.type(input_lsb(chain.model, buffer))
    other = reference.run({**inputs, buffer.name: nudged})
    return {out.name: compare(ort[out.name], other[out.name], Float()) for out in chain.model.graph.output}


def timed_runs(chain: Chain, inputs: Tensors) -> tuple[RunResult, dict[str, float]]:
    """Plain runs of ORT and ISS in turn: the result of the ISS, and the median seconds of each."""
    session = plain_session(chain.model)
    result = chain.run(inputs)
    seconds_of_one_run(session, inputs)
    pairs = [(seconds_of_one_run(session, inputs), chain.run(inputs).seconds) for _ in range(TIMED_RUNS)]
    ort, iss = zip(*pairs, strict=True)
    return result, {"ort": statistics.median(ort), "iss": statistics.median(iss)}


def _same(iss: NDArray[Any], golden: NDArray[Any] | None) -> bool:
    return golden is not None and iss.size == golden.size and np.array_equal(iss.reshape(-1), golden.reshape(-1))
