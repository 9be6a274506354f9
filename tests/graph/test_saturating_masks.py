"""Masks before a softmax: what saturates, what keeps its range, and that the probabilities are those of real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from epu.graph import Fixed, Float, Graph, Node, Tensor
from epu.passes import assign_fraction_bits
from epu.passes.saturate_masks import exposed_masks, saturate_masks
from epu.reference import run_reference
from epu.simulator.fixed_point import decode_raw, encode_real
from epu.simulator.program import Decode

Reals = NDArray[np.float64]
Interval = tuple[float, float]

ROWS, LENGTH = 6, 16
SHAPE = (ROWS, LENGTH)
LOWEST = float(np.finfo(np.float32).min)
SCORES = np.random.default_rng(0).normal(0, 4, SHAPE)


def graph_of(nodes: list[tuple[str, str, list[str]]], ranges: dict[str, Interval], **constants: Any) -> Graph:
    """Float graph with calibrated ranges; what no node makes is an input, the last node's output is that of the graph."""
    tensors = {name: Tensor(name, SHAPE, Float(), None, ends, "tranges") for name, ends in ranges.items()}
    for name, data in constants.items():
        values = np.asarray(data, np.float32)
        tensors[name] = Tensor(
            name, values.shape, Float(), values, (float(values.min()), float(values.max())), "constant"
        )
    made = [Node(name, op, inputs, [name]) for name, op, inputs in nodes]
    inputs = [name for name in ranges if name not in {each.name for each in made}]
    return Graph("masks", made, tensors, inputs, [made[-1].name])


def softmax(x: Reals) -> Reals:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def run(graph: Graph, **inputs: Reals) -> tuple[Graph, dict[str, Reals]]:
    """The graph with fraction bits, and the reals of every tensor by the operator rows."""
    fixed = assign_fraction_bits(saturate_masks(graph))
    decodes = {name: decode(tensor) for name, tensor in fixed.tensors.items()}
    raw = run_reference(fixed, {name: encode_real(decodes[name], values) for name, values in inputs.items()})
    return fixed, {name: np.asarray(decode_raw(decodes[name], values)) for name, values in raw.items()}


def decode(tensor: Tensor) -> Decode:
    assert isinstance(tensor.type, Fixed)
    return Decode("fx", frac=tensor.type.frac)


def frac(graph: Graph, name: str) -> int:
    return decode(graph.tensors[name]).frac


ADDED = [("sum", "Add", ["scores", "mask"]), ("y", "Softmax", ["sum"])]
RANGES = {"scores": (-15.0, 14.0), "y": (0.0, 1.0)}


@pytest.mark.parametrize("low", [-1e4, -1e9, LOWEST])
def test_scores_beside_a_mask_keep_their_bits_and_the_softmax_is_right(low: float) -> None:
    mask = np.where(np.arange(LENGTH) < np.arange(1, ROWS + 1)[:, None] * 2, 0.0, low)
    graph, values = run(graph_of(ADDED, {**RANGES, "mask": (low, 0.0), "sum": (low, 14.0)}), scores=SCORES, mask=mask)
    assert frac(graph, "sum") >= frac(graph, "scores") - 2
    assert np.all(values["y"][mask < 0] == 0)
    assert np.abs(values["y"] - softmax(SCORES + mask)).max() < 2.0**-24


def test_a_row_that_is_masked_whole_is_uniform() -> None:
    graph = graph_of(ADDED, {**RANGES, "mask": (LOWEST, 0.0), "sum": (LOWEST, 14.0)})
    _, values = run(graph, scores=SCORES, mask=np.full(SHAPE, LOWEST))
    np.testing.assert_allclose(values["y"], 1 / LENGTH, atol=2.0**-28)


def test_values_between_score_and_mask_are_exact() -> None:
    """A distance penalty that reaches below -1000: small penalties count."""
    penalty = -100.0 * np.abs(np.arange(ROWS)[:, None] - np.arange(LENGTH))
    penalty[:, 8:] /= 50
    graph = graph_of(ADDED, {**RANGES, "mask": (-1500.0, 0.0), "sum": (-1500.0, 14.0)})
    _, values = run(graph, scores=SCORES, mask=penalty)
    assert np.abs(values["y"] - softmax(SCORES + penalty)).max() < 2.0**-24


@pytest.mark.parametrize("keep", [np.array(1.0), np.array(2.0**-10)])
def test_a_mask_made_by_a_product_saturates_instead_of_leaving_64_bits(keep: Reals) -> None:
    hidden = np.where(np.arange(LENGTH) < 9, 0.0, keep) * np.ones(SHAPE)
    nodes = [("mask", "Mul", ["hidden", "factor"]), *ADDED]
    ranges = {**RANGES, "hidden": (0.0, 1.0), "mask": (LOWEST, -0.0), "sum": (LOWEST, 14.0)}
    _, values = run(graph_of(nodes, ranges, factor=LOWEST), scores=SCORES, hidden=hidden)
    assert np.abs(values["y"] - softmax(np.where(hidden > 0, -np.inf, SCORES))).max() < 2.0**-24


def test_two_masks_one_of_them_constant() -> None:
    causal = np.where(np.arange(LENGTH) <= np.arange(ROWS)[:, None] + 4, 0.0, -1e9)
    padding = np.where(np.arange(LENGTH) < 7, 0.0, LOWEST) * np.ones(SHAPE)
    nodes = [("first", "Add", ["scores", "causal"]), ("sum", "Add", ["first", "mask"]), ("y", "Softmax", ["sum"])]
    ranges = {**RANGES, "mask": (LOWEST, 0.0), "first": (-1e9, 14.0), "sum": (LOWEST, 14.0)}
    graph, values = run(graph_of(nodes, ranges, causal=causal), scores=SCORES, mask=padding)
    assert frac(graph, "first") >= frac(graph, "scores") - 5
    assert np.abs(values["y"] - softmax(SCORES + causal + padding)).max() < 2.0**-20


def test_scores_replaced_by_minus_infinity() -> None:
    mask = np.arange(LENGTH) < 5
    nodes = [("sum", "Where", ["hidden", "lowest", "scores"]), ("y", "Softmax", ["sum"])]
    graph = graph_of(nodes, {**RANGES, "sum": (LOWEST, 14.0)}, lowest=LOWEST)
    fixed = assign_fraction_bits(saturate_masks(graph))
    assert frac(fixed, "sum") >= frac(fixed, "scores") - 2
    raw = {"hidden": (mask * np.ones(SHAPE)).astype(np.int32), "lowest": fixed.tensors["lowest"].data}
    raw["scores"] = encode_real(decode(fixed.tensors["scores"]), SCORES)
    fixed.inputs = ["hidden", "scores"]
    found = run_reference(fixed, raw)["y"]  # type: ignore[arg-type]
    expected = softmax(np.where(mask, -np.inf, SCORES))
    assert np.abs(np.asarray(decode_raw(decode(fixed.tensors["y"]), found)) - expected).max() < 2.0**-24


def test_real_scores_far_below_zero_are_no_mask() -> None:
    nodes = [("sum", "Add", ["scores", "bias"]), ("y", "Softmax", ["sum"])]
    graph = graph_of(nodes, {"scores": (-2000.0, 1500.0), "bias": (-3.0, 3.0), "sum": (-2000.0, 1500.0), "y": (0, 1)})
    assert saturate_masks(graph) is graph


def test_what_others_read_too_keeps_its_range() -> None:
    nodes = [*ADDED, ("z", "Abs", ["sum"])]
    graph = graph_of(nodes, {**RANGES, "mask": (LOWEST, 0.0), "sum": (LOWEST, 14.0), "z": (0.0, -LOWEST)})
    assert saturate_masks(graph) is graph


def test_a_sum_that_leaves_the_graph_is_exposed() -> None:
    ranges = {"scores": (-15.0, 14.0), "mask": (-1e4, 0.0), "sum": (-1e4, 14.0)}
    graph = graph_of(ADDED[:1], ranges)
    assert exposed_masks(graph, []) == []  # an activation may be -1e4
    assert [node.name for node in exposed_masks(graph, ["sum"])] == ["sum"]
    graph.tensors["sum"].range = (LOWEST, 14.0)
    assert [node.name for node in exposed_masks(graph, [])] == ["sum"]
