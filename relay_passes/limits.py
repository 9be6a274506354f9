"""Which recognised nodes the compiler takes: asks the compiler above this folder."""

from __future__ import annotations

from collections.abc import Iterable

from epu.graph import Graph
from epu.simulator.errors import UserError


def refusals(graph: Graph, excluded: Iterable[str]) -> dict[str, UserError]:
    """Nodes of ``graph`` that must stay on the host although Relay's side knows them, each with its reason.

    ``excluded`` are nodes that stay on the host anyway.
    """
    return {}
