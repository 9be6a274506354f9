"""Passes that spell an operator with others leave its values as its row defines them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from layout_cases import LAYOUT
from node_cases import cases
from one_node import assert_same

from epu.compiler import PASSES
from epu.graph import Graph
from epu.passes import expand_conv_transpose, expand_linear_resize, reduce_last_axes, requantise_concats
from epu.reference import run_reference

EXPANSIONS = (requantise_concats, reduce_last_axes, expand_conv_transpose, expand_linear_resize)
OPS = ("Concat", "QLinearConcat", "QLinearConvTranspose", "ConvTranspose", "Resize")
BUILDERS = [pytest.param(build, id=op) for op in OPS for build in LAYOUT[op]]


def after(graph: Graph, expanded: bool) -> Graph:
    for each in PASSES:
        graph = each(graph) if expanded or each not in EXPANSIONS else graph
    return graph


@pytest.mark.parametrize("rounding", ["exact", "ort"])
@pytest.mark.parametrize("build", BUILDERS)
def test_same_values(build, rounding) -> None:  # type: ignore[no-untyped-def]
    @settings(max_examples=10)
    @given(cases(build))
    def check(case) -> None:  # type: ignore[no-untyped-def]
        graph, inputs = case
        found, expected = (run_reference(after(graph, each), inputs, rounding)["y"] for each in (True, False))
        assert_same("y", found, expected)

    check()
