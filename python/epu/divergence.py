"""Where the free run of a job first leaves ONNX Runtime, and which part of the model shows it alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from epu.comparison import Comparison
from epu.metrics import END_TO_END, ISOLATED, Row
from epu.observed import node_outputs
from epu.onnx_cut import reads_of
from epu.reasons_names import comment, unexplained
from epu.stages import Chain
from epu.validation_result import ValidationResult

GOLDEN = "the simulator differs from golden"


@dataclass(frozen=True)
class Divergence:
    """One output of one ONNX node. ``why``: the reasons of its mismatches, or that ISS and golden differ there.

    ``is_wrong``: no reason explains it, so that one of the two has a fault.
    """

    node: str
    op: str
    tensor: str
    label: str
    why: str
    is_wrong: bool
    row: Row


def first_divergence(result: ValidationResult) -> Divergence | None:
    """The first node in the model's order that is wrong; where none is, the first that leaves its gate.

    A node is wrong where ISS and golden differ, or where a mismatch of the free run or of the node alone has no reason.
    """
    golden = set(result.evidence.golden_differs)
    free = [each for each in result.evidence.comparisons if each.mode == END_TO_END]
    alone = {each.output: each for each in result.evidence.comparisons if each.mode == ISOLATED}
    wrong = (each for each in free if _is_wrong(each, alone.get(each.output), golden))
    first = next(wrong, None)
    if first is not None:
        return _divergence(first, alone.get(first.output), golden, is_wrong=True)
    leaves = next((each for each in free if each.row["Name"] == result.first_divergence), None)
    return None if leaves is None else _divergence(leaves, None, golden, is_wrong=False)


def _is_wrong(free: Comparison, alone: Comparison | None, golden: set[str]) -> bool:
    rows = [each.row for each in (free, alone) if each is not None]
    return free.output.tensor in golden or any(unexplained(row["reasons"]) for row in rows)


def _divergence(free: Comparison, alone: Comparison | None, golden: set[str], is_wrong: bool) -> Divergence:
    shown = free if unexplained(free.row["reasons"]) or alone is None else alone
    why = GOLDEN if free.output.tensor in golden else comment(shown.row["reasons"])
    output = free.output
    return Divergence(output.node, output.op, output.tensor, output.label, why, is_wrong, shown.row)


def parts_around(chain: Chain, node: str) -> Iterator[list[onnx.NodeProto]]:
    """Growing parts of the model that hold the node: its kernel's nodes, those and the kernels they read from, …, all.

    Nodes that belong to no kernel, such as folded ones and those of the host, go with what reads them.
    """
    groups = _kernel_groups(chain)
    names = _named(chain.model)
    by_output = {tensor: name for name, each in names.items() for tensor in each.output if tensor}
    chosen = set(groups.get(node, {node}))
    while True:
        yield [each for name, each in names.items() if name in chosen]
        reads = {tensor for name in chosen if name in names for tensor in reads_of(names[name])}
        makers = {by_output[tensor] for tensor in reads if tensor in by_output}
        grown = chosen.union(*(groups.get(maker, {maker}) for maker in makers))
        if grown == chosen:
            return
        chosen = grown


def _named(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    """Nodes by the names that reports give them."""
    names = {output.tensor: output.node for output in node_outputs(model)}
    found = ((next((names[name] for name in node.output if name in names), ""), node) for node in model.graph.node)
    return {name: node for name, node in found if name}


def _kernel_groups(chain: Chain) -> dict[str, set[str]]:
    """Node → the nodes of all kernels that it takes part in."""
    groups: dict[str, set[str]] = {}
    for stage in chain.epu:
        for span in stage.program.debug.kernels:
            for name in span.nodes:
                groups.setdefault(name, set()).update(span.nodes)
    return groups


def edges(model: onnx.ModelProto, part: Sequence[onnx.NodeProto], tensor: str) -> tuple[list[str], list[str]]:
    """Inputs and outputs of a part: what it reads and does not make; what leaves it.

    The tensor that it is about becomes an output only where nothing else would compute it: an output more would split
    the kernel that the tensor lives in, and another kernel need not show the divergence.
    """
    constant = {each.name for each in model.graph.initializer}
    constant |= {name for node in model.graph.node if node.op_type == "Constant" for name in node.output}
    made = {name for node in part for name in node.output if name}
    reads = dict.fromkeys(name for node in part for name in sorted(reads_of(node)))
    inside = {id(node) for node in part}
    outside = {name for node in model.graph.node if id(node) not in inside for name in reads_of(node)}
    outside |= {value.name for value in model.graph.output}
    starts = [name for name in reads if name not in made and name not in constant]
    alone = {tensor} - reads.keys()
    return starts, sorted((made & outside) | alone) or [tensor]


def told(found: Divergence) -> str:
    """What the user reads first."""
    row: dict[str, Any] = found.row
    wrong = "is wrong" if found.is_wrong else "leaves ONNX Runtime for reasons that are known"
    return (
        f"First divergence: node {found.label} ({found.op}), tensor '{found.tensor}', {wrong}: {found.why}. "
        f"{row['Bitwise Mismatches']} of {row['total']} elements differ, most at {row['Max Abs Err Loc']}: "
        f"ORT {row['ORT[loc]']}, ISS {row['ISS[loc]']}."
    )
