"""From an ONNX model to the typed graph: the door, the check that all of it runs on the EPU, the calibrated ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epu.errors import UnsupportedNode, UserError
from epu.graph import Graph
from epu.passes.assign_ranges import assign_ranges
from epu.passes.compose_custom_ops import compose_custom_ops
from epu.ranges import Range

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True)
class Imported:
    """A model behind the Relay door, with the ONNX tensor names of its nodes' outputs."""

    module: Any
    names: dict[tuple[str, int], str]


def import_model(model: ModelProto) -> Imported:
    """Import into Relay. Raises UserError where TVM is missing, UnsupportedNode for an unknown operator."""
    require_tvm()
    from epu.relay_passes.import_onnx import import_onnx

    module, _, names = import_onnx(model)
    return Imported(module, names)


def require_tvm() -> None:
    """Raise UserError where TVM's Relay is missing."""
    try:
        import tvm.relay  # noqa: F401  # first and alone: its import runs our hook, which imports relay_passes
    except ModuleNotFoundError as error:
        raise UserError(f"compiling needs TVM's Relay: {error}. Run `epu doctor` to see what to install.") from error


def refusals_of(model: ModelProto) -> tuple[Imported | None, dict[str, UserError]]:
    """The model behind the Relay door, or the ONNX nodes that must run on the host, each with the error that says why."""
    require_tvm()
    from epu.onnx_shapes import value_types
    from epu.relay_passes.import_onnx import import_refusals
    from epu.relay_passes.partition import refused_nodes

    try:
        imported = import_model(model)
    except UnsupportedNode as error:
        refusals = import_refusals(model, value_types(model))
        if not refusals:
            raise error
        return None, refusals
    refusals = refused_nodes(imported.module)
    return (None, refusals) if refusals else (imported, {})


def to_typed_graph(imported: Imported, ranges: Mapping[str, Range] | None, name: str) -> Graph:
    """The typed graph, each float tensor with its range: calibrated, or without ``ranges`` what the operators imply.

    Raises UnsupportedNode if a node cannot run on the EPU, UserError if a tensor has no range.
    """
    require_all_on_epu(imported.module)
    return typed_graph(imported, ranges, name)


def typed_graph(imported: Imported, ranges: Mapping[str, Range] | None, name: str) -> Graph:
    """The same of a model that is known to run on the EPU."""
    from epu.relay_passes.to_graph import to_graph

    return assign_ranges(compose_custom_ops(to_graph(imported.module, name, imported.names)), ranges)


def require_all_on_epu(module: Any) -> None:
    """Raise UnsupportedNode with the first node that would need a host."""
    from epu.relay_passes.partition import placement

    host = [row for row in placement(module) if row.where == "host"]
    if host:
        more = f" ({len(host) - 1} more: {', '.join(row.node for row in host[1:6])})" if len(host) > 1 else ""
        raise UnsupportedNode(f"{host[0].reason}. {host[0].remedy}{more}")
