"""Decides which nodes of an ONNX model the host computes, and tells why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from epu.errors import UnsupportedNode, UserError
from epu.log import get_logger
from epu.names import near

if TYPE_CHECKING:
    from onnx import ModelProto

    from epu.front_end import Imported
    from epu.onnx_parts import Named, Part

EPU, HOST, FOLDED = "EPU", "host", "folded"
MAC_OPS = frozenset(
    "Attention Conv ConvInteger ConvTranspose DeformConv Einsum FusedConv FusedGemm FusedMatMul GRU Gemm LSTM MatMul "
    "MatMulInteger QAttention QGemm QLinearConv QLinearConvTranspose QLinearMatMul RNN".split()
)  # they carry multiply-accumulates

log = get_logger("placement")

Refusals = dict[str, UserError]


@dataclass(frozen=True)
class PlacedNode:
    """Where one ONNX node runs: ``where`` is "EPU", "host", or "folded" for what is computed at compile time.

    ``stage`` counts the stages of the job from 0, None where folded; ``reason`` and ``remedy`` say why it is on the host.
    """

    node: str
    op: str
    where: str
    stage: int | None
    reason: str = ""
    remedy: str = ""


class Placement(Sequence[PlacedNode]):
    """One row per ONNX node; ``print`` shows the table, ``to_list`` gives the rows for JSON."""

    def __init__(self, rows: Sequence[PlacedNode]) -> None:
        self.rows = tuple(rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        where = [row.where for row in self.rows]
        return f"Placement({', '.join(f'{where.count(each)} {each}' for each in dict.fromkeys(where))})"

    def __str__(self) -> str:
        from epu.reports import grid

        cells = ([row.node, row.op, row.where, _stage_text(row.stage), row.reason, row.remedy] for row in self.rows)
        return grid(cells, ("Node", "Op", "Where", "Stage", "Reason", "Remedy"))

    def host_table(self) -> str:
        """The rows of the host alone."""
        from epu.reports import grid

        cells = ([row.node, row.op, _stage_text(row.stage), f"{row.reason}. {row.remedy}"] for row in self.host)
        return grid(cells, ("On the host", "Op", "Stage", "Why"))

    def _repr_html_(self) -> str:
        from epu.notebook_html import placement_html

        return placement_html(self)

    @property
    def host(self) -> list[PlacedNode]:
        return [row for row in self.rows if row.where == HOST]

    def to_list(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self.rows]


def _stage_text(stage: int | None) -> str:
    return "-" if stage is None else str(stage)


@dataclass(frozen=True)
class Plan:
    """The parts of a model in order, those of the EPU behind the Relay door, and why host nodes are on the host."""

    parts: list[tuple[Part, Imported | None]]
    refusals: Refusals


def plan(model: ModelProto, exclude: Collection[str] = (), known: Mapping[str, UserError] | None = None) -> Plan:
    """Place every node: on the host what the EPU refuses, what ``exclude`` names and what ``known`` says already.

    Raises UserError for an unknown name in ``exclude``, UnsupportedNode where a node with multiply-accumulates would be on
    the host without being named, and where no node is left for the EPU.
    """
    from epu.front_end import refusals_of
    from epu.onnx_parts import split
    from epu.relay_passes.import_onnx import sorted_nodes

    nodes = sorted_nodes(model)
    found = {**(known or {}), **_exclusions(nodes, exclude)}
    while True:
        _require_macs_on_epu(nodes, found, exclude)
        parts = split(model, nodes, found)
        judged = [(part, *((None, {}) if part.on_host else refusals_of(part.model))) for part in parts]
        more = {name: error for _, _, refusals in judged for name, error in refusals.items() if name not in found}
        if not more:
            break
        found.update(more)
    if all(part.on_host for part in parts):
        raise _nothing_left(found)
    return Plan([(part, imported) for part, imported, _ in judged], found)


def _exclusions(nodes: Sequence[Named], exclude: Collection[str]) -> Refusals:
    names = [name for _, name in nodes]
    if isinstance(exclude, str):
        raise UserError(f"exclude must be a list of node names, found '{exclude}'. Write ['{exclude}'].")
    for name in exclude:
        if not isinstance(name, str):
            raise UserError(f"exclude must be a list of node names, found {name!r} in it. Write the node's name.")
        if name not in names:
            raise UserError(f"exclude: the model has no node '{name}'. {near(name, names)}")
    return {
        name: UnsupportedNode(f"ONNX node '{name}': excluded by the user. Remove it from exclude=[...].")
        for name in exclude
    }


def _require_macs_on_epu(nodes: Sequence[Named], refusals: Refusals, exclude: Collection[str]) -> None:
    for node, name in nodes:
        if node.op_type not in MAC_OPS or name not in refusals:
            continue
        if name in exclude:
            log.warning(
                f"ONNX node '{name}' ({node.op_type}) carries multiply-accumulates and runs on the host: excluded"
            )
            continue
        raise UnsupportedNode(
            f"{refusals[name]} A node with multiply-accumulates runs on the host only if it is named: exclude=['{name}'] "
            f"(--exclude '{name}')."
        )


def _nothing_left(refusals: Refusals) -> UnsupportedNode:
    name, error = next(iter(refusals.items()))
    more = f" ({len(refusals) - 1} more nodes are refused)" if len(refusals) > 1 else ""
    return UnsupportedNode(f"{error} No node of the model would run on the EPU, and a job needs one{more}.")


def placement_table(model: ModelProto, made: Plan) -> Placement:
    """The table of a plan, in the model's order."""
    from epu.onnx_parts import static_tensors
    from epu.relay_passes.import_onnx import node_names, sorted_nodes

    where = {name: index for index, (part, _) in enumerate(made.parts) for name in part.nodes}
    on_host, on_epu = (_nodes_within(made, side) for side in (True, False))
    shared = {name: index for name, index in on_host.items() if name not in on_epu}
    static = static_tensors(model, sorted_nodes(model))
    rows = []
    for node, name in zip(model.graph.node, node_names(model), strict=True):
        stage = where.get(name, shared.get(name))
        if stage is not None and made.parts[stage][0].on_host:
            rows.append(_host_row(name, node.op_type, stage, made.refusals.get(name)))
        elif stage is None or {output for output in node.output if output} <= static:
            rows.append(PlacedNode(name, node.op_type, FOLDED, None))
        else:
            rows.append(PlacedNode(name, node.op_type, EPU, stage))
    return Placement(rows)


def _nodes_within(made: Plan, on_host: bool) -> dict[str, int]:
    """Every node in a part's model, those that depend on no input included, and the first such part."""
    chosen = [(index, part) for index, (part, _) in enumerate(made.parts) if part.on_host == on_host]
    return {node.name: index for index, part in reversed(chosen) for node in part.model.graph.node}


def _host_row(name: str, op: str, stage: int, error: UserError | None) -> PlacedNode:
    """Reason and remedy are the message's two sentences; without an error it is a constant."""
    if error is None:
        reason = f"ONNX node '{name}' ({op}): depends on no input, and only the host or the model's outputs read it"
        return PlacedNode(name, op, HOST, stage, reason, "Fold it into an initializer.")
    reason, _, remedy = str(error).partition(". ")
    return PlacedNode(name, op, HOST, stage, reason, remedy)
