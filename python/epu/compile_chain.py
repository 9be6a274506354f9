"""ONNX model → the stages of a job: placed, split, each EPU part compiled to one program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from epu.errors import UnsupportedNode, UserError
from epu.job_placement import Placement, placement_table, plan
from epu.stages import Chain, EpuStage, HostStage, Stage

if TYPE_CHECKING:
    from onnx import ModelProto

    from epu.front_end import Imported
    from epu.graph import Graph, Node
    from epu.onnx_parts import Part
    from epu.ranges import Range
    from epu.simulator.machine import Machine

SOFTMAXES = frozenset({"Softmax", "LogSoftmax"})

Timed = Callable[[str], AbstractContextManager[None]]  # opens a stage of the compiler by name, in log and clock


@dataclass
class ChainCompiler:
    """Compiles one model. ``timed`` opens the stages before code generation, whose own seconds are added up in
    ``seconds``; ``exclude`` names ONNX nodes to leave on the host."""

    model: ModelProto
    ranges: Mapping[str, Range] | None
    machine: Machine
    rounding: str
    name: str
    exclude: Collection[str]
    timed: Timed
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self) -> tuple[Chain, Placement]:
        """Nodes that only code generation refuses go to the host too, and the model is split anew.

        Raises UnsupportedNode as ``plan`` does, CapacityError, and UserError for a float tensor without a range.
        """
        known: dict[str, UserError] = {}
        while True:
            with self.timed("partition"):
                made = plan(self.model, self.exclude, known)
            self.seconds.clear()
            stages: list[Stage] = []
            more: dict[str, UserError] = {}
            for index, (part, imported) in enumerate(made.parts):
                stage, refused = self._stage(index, part, imported, alone=len(made.parts) == 1)
                stages += [stage] if stage is not None else []
                more.update(refused)
            if not more:
                return Chain(self.model, tuple(stages)), placement_table(self.model, made)
            known.update(more)

    def _stage(
        self, index: int, part: Part, imported: Imported | None, alone: bool
    ) -> tuple[Stage | None, dict[str, UserError]]:
        """The stage, or the nodes that must leave it."""
        from epu.compiler import compile_graph
        from epu.front_end import typed_graph
        from epu.relay_passes.limits import lowering_refusals

        if imported is None:
            return HostStage(index, part.model), {}
        name = self.name if alone else f"{self.name}.{index}"
        with self.timed("optimize_relay"):
            graph = typed_graph(imported, self.ranges, name)
        exposed = self._exposed(graph)
        if exposed:
            return None, exposed
        try:
            compiled = compile_graph(graph, self.machine, rounding=self.rounding, name=name)
        except UnsupportedNode:
            refused = lowering_refusals(graph, part.nodes)
            if not refused:
                raise
            return None, refused
        for key, value in compiled.seconds.items():
            self.seconds[key] = self.seconds.get(key, 0.0) + value
        return EpuStage(index, part.model, compiled), {}

    def _exposed(self, graph: Graph) -> dict[str, UserError]:
        """Nodes whose sum of scores and mask the host reads: fixed point that holds the mask loses the scores."""
        from epu.passes.saturate_masks import exposed_masks

        readers: dict[str, set[str]] = {}
        for node in self.model.graph.node:
            for name in node.input:
                readers.setdefault(name, set()).add(node.op_type)
        to_softmax = [name for name in graph.outputs if readers.get(name) and readers[name] <= SOFTMAXES]
        return {node.name: _exposed_error(node, graph) for node in exposed_masks(graph, to_softmax)}


def _exposed_error(node: Node, graph: Graph) -> UnsupportedNode:
    ends = graph.tensors[node.outputs[0]].range
    return UnsupportedNode(
        f"ONNX node '{node.name}' ({node.op}): scores beside a mask must reach a softmax on the EPU, found the range {ends} "
        f"of '{node.outputs[0]}', which the host reads. Let the softmax run on the EPU."
    )
