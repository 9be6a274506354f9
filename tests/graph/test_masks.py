"""Comparisons, logic and selection in raw integers; masks that would leave the EPU are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from epu.errors import UnsupportedNode
from epu.graph import Fixed, Graph, Integer, Node, Tensor
from epu.passes import check_limits
from epu.reference import run_reference

A, B = (
    np.int32([-5, 3, 8, 2**31 - 1]),
    np.int32([-20, 12, 31, -(2**31)]),
)  # Q2 and Q4: -1.25, .75, 2, big; -1.25, .75, 1.94, small


def graph_of(nodes: list[Node], outputs: list[str], y: int = 3) -> Graph:
    mask = Integer("bool")
    tensors = {"a": Tensor("a", (4,), Fixed(2)), "b": Tensor("b", (4,), Fixed(4)), "y": Tensor("y", (4,), Fixed(y))}
    tensors |= {name: Tensor(name, (4,), mask) for name in "mn"}
    return Graph("masks", nodes, tensors, ["a", "b"], outputs)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("Equal", [1, 1, 0, 0]),
        ("Less", [0, 0, 0, 0]),
        ("LessOrEqual", [1, 1, 0, 0]),
        ("Greater", [0, 0, 1, 1]),
        ("GreaterOrEqual", [1, 1, 1, 1]),
    ],
)
def test_comparison_of_different_formats(op: str, expected: list[int]) -> None:
    found = run_reference(graph_of([Node("n", op, ["a", "b"], ["m"])], ["m"]), {"a": A, "b": B})["m"]
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([Node("w", "Where", ["m", "a", "b"], ["y"])], [-10, 6, 16, -(2**30)]),
        ([Node("o", "Not", ["m"], ["n"]), Node("w", "Where", ["n", "a", "b"], ["y"])], [-10, 6, 16, 2**31 - 1]),
    ],
)
def test_where_aligns_and_saturates(nodes: list[Node], expected: list[int]) -> None:
    graph = graph_of([Node("n", "Less", ["b", "a"], ["k"]), Node("e", "Equal", ["a", "b"], ["m"]), *nodes], ["y"])
    graph.tensors["k"] = Tensor("k", (4,), Integer("bool"))
    assert check_limits(graph) is graph
    assert run_reference(graph, {"a": A, "b": B})["y"].tolist() == expected


def refused(nodes: list[Node], outputs: list[str], **changes: Any) -> str:
    with pytest.raises(UnsupportedNode) as error:
        check_limits(graph_of(nodes, outputs, **changes))
    return str(error.value)


def test_refusals() -> None:
    less = Node("n", "Less", ["a", "b"], ["m"])
    assert "conditions are masks of type bool, found fixed 'a'" in refused(
        [Node("w", "Where", ["a", "a", "b"], ["y"])], ["y"]
    )
    assert "at most 31 fraction bits more" in refused([less, Node("w", "Where", ["m", "a", "b"], ["y"])], ["y"], y=34)
