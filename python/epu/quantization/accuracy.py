"""Which nodes to leave in fixed point so that the quantised model stays as good as asked: the fewest that do.

Each node's harm is what the metric loses when that node alone is int8. The most harmful nodes stay float, as many as the
target needs (found by bisection), and of these each that turns out to be unnecessary becomes int8 again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from epu.errors import UserError
from epu.log import get_logger
from epu.quantization.npz import Sample
from epu.quantization.session import open_session, run

log = get_logger("quantize")

Outputs = list[NDArray[Any]]  # of one sample
Quantise = Callable[[Sequence[str]], onnx.ModelProto]  # the model with these nodes left float

# no arithmetic: int8 or not, they pass on what they get
MOVES = frozenset(
    "Concat DepthToSpace Expand Flatten Gather Identity MaxPool Pad Reshape Resize Slice SpaceToDepth Split Squeeze Tile "
    "Transpose Unsqueeze".split()
)


@dataclass(frozen=True)
class Target:
    """``drop``: how much the metric may lose against the float model. ``labels``: one class per sample, for "top1"."""

    drop: float
    metric: str = "cosine"
    labels: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise UserError(f"metric must be one of {', '.join(METRICS)}, found '{self.metric}'. Choose one of these.")
        if not 0 <= self.drop < 1:
            raise UserError(f"accuracy_drop must be from 0 up to 1, found {self.drop}. An example is 0.01.")
        if self.labels is not None and self.metric != "top1":
            raise UserError(f"labels must come with the metric top1, found '{self.metric}'. Leave one of the two out.")


@dataclass(frozen=True)
class NodeHarm:
    """What the metric loses when this node alone is int8, and whether it was left float in the end."""

    node: str
    op: str
    harm: float
    left_float: bool


@dataclass(frozen=True)
class Accuracy:
    """Scores (higher is better) of the float model, of the model with every node int8, and of the chosen one."""

    metric: str
    goal: float
    float_score: float
    int8_score: float
    score: float
    nodes: tuple[NodeHarm, ...]  # most harmful first

    @property
    def left_float(self) -> list[str]:
        return [each.node for each in self.nodes if each.left_float]


def cosine(found: Outputs, wanted: Outputs, label: int | None) -> float:
    """Cosine between the outputs of the sample and those of the float model; the worst output counts."""
    return min(map(_cosine, found, wanted), default=1.0)


def _cosine(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    a, b = (np.asarray(each, np.float64).ravel() for each in (found, wanted))
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length else float(np.array_equal(a, b))


def closeness(found: Outputs, wanted: Outputs, label: int | None) -> float:
    """1 minus the root mean square error relative to the float model's root mean square; the worst output counts."""
    return min(map(_closeness, found, wanted), default=1.0)


def _closeness(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    a, b = (np.asarray(each, np.float64).ravel() for each in (found, wanted))
    size = float(np.linalg.norm(b))
    return 1 - float(np.linalg.norm(a - b)) / size if size else float(np.array_equal(a, b))


def top1(found: Outputs, wanted: Outputs, label: int | None) -> float:
    """Share of rows of the first output whose largest class is the label's, or without labels the float model's."""
    classes = np.argmax(found[0], axis=-1)
    return float(np.mean(classes == (np.argmax(wanted[0], axis=-1) if label is None else label)))


METRICS: dict[str, Callable[[Outputs, Outputs, int | None], float]] = {
    "cosine": cosine,
    "rmse": closeness,
    "top1": top1,
}


def reach(target: Target, model: onnx.ModelProto, samples: Iterable[Sample], quantise: Quantise) -> Accuracy:
    """Find the nodes of ``model`` (float) to leave float. Raises UserError where no choice reaches the target."""
    search = _Search(target, model, samples, quantise)
    every = quantise(())
    names = _candidates(model, every)
    float_score, int8_score = search.score_of(model), search.score_of(every)
    goal = float_score - target.drop
    log.info("%s: float %.6f, all int8 %.6f, goal %.6f", target.metric, float_score, int8_score, goal)
    harms = {} if int8_score >= goal else _harms(search, names, float_score)
    ranked = sorted(harms, key=lambda name: -harms[name])
    chosen = _fewest(search, ranked, goal)
    score = int8_score if not chosen else search.score(chosen)
    ops = {node.name: node.op_type for node in model.graph.node}
    nodes = tuple(NodeHarm(name, ops[name], harms[name], name in chosen) for name in ranked)
    log.info("%s: %.6f with %d of %d nodes left in fixed point", target.metric, score, len(chosen), len(names))
    return Accuracy(target.metric, goal, float_score, int8_score, score, nodes)


def _candidates(model: onnx.ModelProto, quantised: onnx.ModelProto) -> list[str]:
    """Nodes with arithmetic whose inputs or operator the quantiser changed."""
    kept = {(node.name, node.op_type, tuple(node.input)) for node in quantised.graph.node}
    return [
        node.name
        for node in model.graph.node
        if node.op_type not in MOVES and (node.name, node.op_type, tuple(node.input)) not in kept
    ]


def _harms(search: _Search, names: list[str], float_score: float) -> dict[str, float]:
    harms = {}
    for index, name in enumerate(names, 1):
        harms[name] = float_score - search.score([other for other in names if other != name])
        log.info("harm %d of %d: %.6f %s", index, len(names), harms[name], name)
    return harms


def _fewest(search: _Search, ranked: list[str], goal: float) -> list[str]:
    """The smallest head of ``ranked`` that reaches the goal, less what is not needed after all."""
    low, high = 0, len(ranked)
    if ranked and search.score(ranked) < goal:
        raise UserError(
            f"accuracy_drop: no choice of nodes reaches {goal:.6f}; with all {len(ranked)} in fixed point the score is "
            f"{search.score(ranked):.6f}. Allow a larger drop, or give more calibration samples."
        )
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if search.score(ranked[:middle]) >= goal else (middle + 1, high)
    chosen = ranked[:low]
    for name in reversed(chosen[:-1]):  # the last one was needed
        fewer = [other for other in chosen if other != name]
        chosen = fewer if search.score(fewer) >= goal else chosen
    return chosen


class _Search:
    """Scores of models with some nodes left float; each choice is measured once."""

    def __init__(self, target: Target, model: onnx.ModelProto, samples: Iterable[Sample], quantise: Quantise) -> None:
        self._metric = METRICS[target.metric]
        self._samples = samples
        self._quantise = quantise
        self._wanted = list(self._outputs(model))
        self._labels: list[int | None] = list(target.labels) if target.labels is not None else [None] * self.count
        self._known: dict[frozenset[str], float] = {}
        if len(self._labels) != self.count:
            raise UserError(
                f"labels must be one per sample, found {len(self._labels)} for {self.count} samples. Give the right file."
            )

    @property
    def count(self) -> int:
        return len(self._wanted)

    def score(self, left_float: Sequence[str]) -> float:
        key = frozenset(left_float)
        if key not in self._known:
            self._known[key] = self.score_of(self._quantise(list(left_float)))
        return self._known[key]

    def score_of(self, model: onnx.ModelProto) -> float:
        """Mean over the samples."""
        found = zip(self._outputs(model), self._wanted, self._labels, strict=True)
        return float(np.mean([self._metric(outputs, wanted, label) for outputs, wanted, label in found]))

    def _outputs(self, model: onnx.ModelProto) -> Iterable[Outputs]:
        session = open_session(model)
        for index, sample in enumerate(self._samples):
            yield [np.asarray(each) for each in run(session, None, sample, index)]
