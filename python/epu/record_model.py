"""What a run record tells of the model: nodes with their depth and place, tensors with their ranges and the risk to saturate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from epu.graph import Fixed, Float, Graph, Integer, Quantized, Tensor
from epu.lowering.lowered import dtype_of
from epu.metrics import dtype_name, is_code
from epu.observed import program_buffers
from epu.simulator.fixed_point import NUMPY_DTYPE
from epu.simulator.program import Program
from epu.tensor_facts import TensorFacts

if TYPE_CHECKING:
    from onnx import ModelProto

    from epu.job_placement import PlacedNode

CLOSE = 0.9  # of the word's limit
BEYOND = 0.01  # of the calibrated range, outside it

Json = dict[str, Any]
Interval = tuple[float, float]


def node_records(model: ModelProto, placed: Iterable[PlacedNode], programs: Mapping[int, Program]) -> list[Json]:
    """One per ONNX node, in the model's order; ``programs`` by stage."""
    depths = node_depths(model)
    kernels = {
        (stage, node): index
        for stage, program in programs.items()
        for index, span in enumerate(program.debug.kernels)
        for node in span.nodes
    }
    return [
        {
            "name": row.node,
            "op": row.op,
            "depth": depth,
            "outputs": [name for name in node.output if name],
            "where": row.where,
            "stage": row.stage,
            "kernel": kernels.get((row.stage, row.node)) if row.stage is not None else None,
            "reason": row.reason,
            "remedy": row.remedy,
        }
        for node, row, depth in zip(model.graph.node, placed, depths, strict=True)
    ]


def node_depths(model: ModelProto) -> list[int]:
    """Nodes on the longest path that ends in each node; nodes need not be in order."""
    makers = {name: index for index, node in enumerate(model.graph.node) for name in node.output if name}
    sources = [[makers[name] for name in node.input if name in makers] for node in model.graph.node]
    depths: dict[int, int] = {}
    for start in range(len(sources)):
        waiting = [start]
        while waiting:
            missing = [each for each in sources[waiting[-1]] if each not in depths]
            if missing:
                waiting += missing
            else:
                index = waiting.pop()
                depths[index] = 1 + max((depths[each] for each in sources[index]), default=0)
    return [depths[index] for index in range(len(sources))]


def tensor_records(stage: int, graph: Graph, program: Program, seen: Mapping[str, TensorFacts]) -> Iterator[Json]:
    """One per tensor of a stage that a kernel can compute or the stage reads."""
    words = {tap.tensor: tap.operand.dtype for tap in program.debug.taps}
    words |= {buffer.name: buffer.dtype for buffer in program_buffers(program)}
    for tensor in graph.tensors.values():
        if tensor.data is None and not isinstance(tensor.type, Float):
            word = NUMPY_DTYPE[words[tensor.name]] if tensor.name in words else np.dtype(dtype_of(tensor))
            yield _tensor(stage, tensor, word, seen.get(tensor.name))


def _tensor(stage: int, tensor: Tensor, word: np.dtype[Any], facts: TensorFacts | None) -> Json:
    limits = _reals(tensor, int(np.iinfo(word).min), int(np.iinfo(word).max))
    values = _reals(tensor, facts.low, facts.high) if facts else None
    use = _use(values or tensor.range, limits) if limits else None
    return {
        "name": tensor.name,
        "stage": stage,
        "type": dtype_name(tensor.type, 8 * word.itemsize),
        "shape": list(tensor.shape),
        "range": _listed(tensor.range),
        "source": tensor.range_source,
        "fraction_bits": tensor.type.frac if isinstance(tensor.type, Fixed) else None,
        "limits": _listed(limits),
        "seen": _listed(values),
        "at_limit": facts.at_limit if facts else None,
        "total": prod(tensor.shape),
        "digest": facts.digest if facts else None,
        "use": use,
        "risk": risk(tensor, facts, values, use),
    }


def risk(tensor: Tensor, facts: TensorFacts | None, values: Interval | None, use: float | None) -> str:
    """How near a tensor is to the limits of its word, as docs/reports.md defines it."""
    if facts and facts.at_limit and not isinstance(tensor.type, Integer):
        return "clipped" if is_code(tensor.type) else "saturated"
    if values and tensor.range and not _within(values, tensor.range):
        return "beyond range"
    if use is None:
        return "unknown"
    return "close" if use > CLOSE and isinstance(tensor.type, Fixed) else "low"


def _within(values: Interval, limits: Interval) -> bool:
    slack = BEYOND * (limits[1] - limits[0])
    return limits[0] - slack <= values[0] and values[1] <= limits[1] + slack


def _use(values: Interval | None, limits: Interval) -> float | None:
    if values is None:
        return None
    shares = [value / limit for value, limit in zip(values, limits) if limit]
    return max(0.0, *shares) if shares else 0.0


def _reals(tensor: Tensor, low: int, high: int) -> Interval | None:
    """What raw integers stand for; None for a tensor with a scale per channel, which has no one answer."""
    kind = tensor.type
    if isinstance(kind, Fixed):
        return low * 2.0**-kind.frac, high * 2.0**-kind.frac
    if isinstance(kind, Quantized):
        return _decoded(kind, low, high) if len(kind.scale) == 1 else None
    return float(low), float(high)


def _decoded(kind: Quantized, low: int, high: int) -> Interval:
    zero, scale = kind.zero_point[0], kind.scale[0]
    return (low - zero) * scale, (high - zero) * scale


def _listed(interval: Sequence[float] | None) -> list[float] | None:
    return None if interval is None else [float(each) for each in interval]
