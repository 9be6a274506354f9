"""What runs on the EPU: recognised nodes become composites, neighbours merge into ``relay.ext.epu`` functions.

The composites are what ``MergeComposite`` would make, but come from the rows of ``recognise``: a DFPattern cannot
share a dequantize between two matches, nor say why it does not match.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from epu.relay_passes import limits
from epu.relay_passes.draft import Draft
from epu.relay_passes.onnx_custom import OP_TYPE, RELAY_OP
from epu.relay_passes.recognise import Recognised, recognise
from epu.relay_passes.relay_view import View, outside_operands, post_order, replace_operands, view_function
from epu.relay_passes.to_graph import build_graph, draft_names
from epu.relay_passes.tvm_relay import relay, tvm
from epu.simulator.errors import UserError

COMPILER = "epu"


@dataclass(frozen=True)
class Placement:
    """Where one node runs; ``reason`` and ``remedy`` say why it is on the host."""

    node: str
    op: str
    where: str  # "EPU" or "host"
    reason: str = ""
    remedy: str = ""


def is_partitioned(module: Any) -> bool:
    """Some function of ``module`` is for the EPU already."""
    return bool(epu_functions(module))


def epu_functions(module: Any) -> dict[str, Any]:
    """EPU functions of a partitioned module, by global symbol."""
    return {
        var.name_hint: function
        for var, function in module.functions.items()
        if isinstance(function, relay.Function) and _compiler(function) == COMPILER
    }


def _compiler(function: Any) -> str:
    attrs = function.attrs
    return str(attrs["Compiler"]) if attrs and "Compiler" in attrs else ""


def partition_for_epu(module: Any, params: dict[str, Any] | None = None, exclude: Collection[str] = ()) -> Any:
    """Module whose EPU nodes are in functions with ``Compiler="epu"``; all others stay as they were.

    ``params`` are bound to ``main`` first; ``exclude`` names nodes to leave on the host. A partitioned module comes
    back unchanged. Raises UserError for a custom operator that cannot run on the EPU.
    """
    if is_partitioned(module):
        return module
    module = prepare(module, params)
    try:
        composed = _with_composites(module, exclude)
    except UserError:  # control flow or dynamic shapes: all of it is the host's, `placement` says why
        if RELAY_OP in relay.analysis.list_op_freqs(module):
            raise
        return module
    passes = [
        relay.transform.InferType(),
        relay.transform.AnnotateTarget([COMPILER], include_non_call_ops=False),
        relay.transform.MergeCompilerRegions(),
        relay.transform.PartitionGraph(),
        relay.transform.InferType(),
    ]
    return tvm.transform.Sequential(passes)(composed)


def prepare(module: Any, params: dict[str, Any] | None = None) -> Any:
    """Bind parameters and fold constants, but leave quantised constants quantised; type-checked."""
    if params:
        bound = relay.build_module.bind_params_by_name(module["main"], params)
        module = tvm.IRModule({**dict(module.functions.items()), module.get_global_var("main"): bound})
    passes = [relay.transform.InferType(), relay.transform.FoldConstant(), relay.transform.InferType()]
    return tvm.transform.Sequential(passes)(module)


def placement(
    module: Any,
    params: dict[str, Any] | None = None,
    exclude: Collection[str] = (),
    *,
    calibrated: bool = True,
) -> list[Placement]:
    """One row per node of the module: where it runs, or would run if partitioned, and why not on the EPU.

    ``calibrated=False`` is what ``relay.build`` knows: no ranges but those that scales give.
    """
    functions = epu_functions(module)
    if not functions:
        return _rows(prepare(module, params)["main"], exclude, calibrated)
    inside = [row for function in functions.values() for row in _rows(function, (), True)]
    return inside + _rows(relay.transform.InferType()(module)["main"], exclude, False)


def refused_nodes(module: Any) -> dict[str, UserError]:
    """Names of the ONNX nodes of a module that cannot run on the EPU, calibrated ranges presumed, with the reasons.

    Of a node between DequantizeLinear and QuantizeLinear it is the node alone.
    """
    view = view_function(prepare(module)["main"])
    refusals = refused(view, recognise(view), (), calibrated=True)
    return {name: error for draft, error in refusals.items() for name in _own_names(draft)}


def _own_names(draft: Draft) -> set[str]:
    parts = [part for part in draft.covers if part.op not in ("DequantizeLinear", "QuantizeLinear")] or [draft]
    names = {step.span for part in parts for step in (*part.members, part.root) if step.span}
    assert names, f"a {draft.op} of an imported model has the name of its ONNX node"
    return names


def _rows(function: Any, exclude: Collection[str], calibrated: bool) -> list[Placement]:
    try:
        view = view_function(function)
        found = recognise(view)
    except UserError as error:  # unbound parameters among them
        return [_host_row("main", "function", error)]
    refusals = refused(view, found, exclude, calibrated)
    names = draft_names(found.drafts)
    own = [draft for draft in found.drafts if not _is_epu_call(draft)]
    return [_row(names[draft], draft, refusals.get(draft)) for draft in own]


def _is_epu_call(draft: Draft) -> bool:
    origin = draft.root.origin
    call = origin.tuple_value if isinstance(origin, relay.TupleGetItem) else origin
    return isinstance(getattr(call, "op", None), relay.GlobalVar)


def _row(name: str, draft: Draft, error: UserError | None) -> Placement:
    return Placement(name, draft.op, "EPU") if error is None else _host_row(name, draft.op, error)


def _host_row(name: str, op: str, error: UserError) -> Placement:
    """Reason and remedy are the message's two sentences."""
    reason, _, remedy = str(error).partition(". ")
    return Placement(name, op, "host", reason, remedy)


def refused(view: View, found: Recognised, exclude: Collection[str], calibrated: bool) -> dict[Draft, UserError]:
    """Drafts that stay on the host, each with the error that says why."""
    refusals: dict[Draft, UserError] = {
        draft: found.refusals[draft.root] for draft in found.drafts if draft.root in found.refusals
    }
    graph = build_graph(view, found, "main", {})
    names = draft_names(found.drafts)
    on_host = {names[draft] for draft in refusals}
    of_limits = limits.refusals(graph, on_host, excluded=exclude, calibrated=calibrated)
    refusals.update({draft: of_limits[name] for draft, name in names.items() if name in of_limits})
    return refusals


# --- composites


def _with_composites(module: Any, exclude: Collection[str]) -> Any:
    """``main`` with each node of the EPU as one composite function."""
    function = module["main"]
    view = view_function(function)
    found = recognise(view)
    on_host = refused(view, found, exclude, calibrated=False)
    for draft, error in on_host.items():
        if draft.op == OP_TYPE:
            raise error  # Relay has no kernel for it on the host
    rebuilt = _Rebuilt({source.origin: source.origin for source in view.inputs})
    for draft in found.drafts:
        if draft.root.origin is not None and draft not in on_host:
            rebuilt.made[draft.root.origin] = rebuilt.composite(draft)
    body = rebuilt.value(function.body)
    main = relay.Function(function.params, body, None, function.type_params, function.attrs)
    return tvm.IRModule({**dict(module.functions.items()), module.get_global_var("main"): main})


@dataclass(frozen=True)
class _Rebuilt:
    """Old expression → its value in the new function."""

    made: dict[Any, Any]

    def value(self, expr: Any) -> Any:
        """``expr`` over the new values of what it reads; calls nobody replaced are copied."""
        for each in post_order(expr, self.made):
            if each not in self.made:
                self.made[each] = replace_operands(each, self.made)
        return self.made[expr]

    def composite(self, draft: Draft) -> Any:
        """Call of a composite function that holds the draft's calls; constants lie inside it."""
        members = sorted((step for step in draft.members if step.origin is not None), key=lambda step: step.index)
        inside: dict[Any, Any] = {}
        params: dict[Any, Any] = {}
        for step in members:
            for outer in outside_operands(step.origin, inside):
                inside[outer] = params[outer] = relay.var(f"x{len(params)}", outer.checked_type)
            for each in post_order(step.origin, inside):
                inside[each] = replace_operands(each, inside)
        function = relay.Function(list(params.values()), inside[draft.root.origin])
        pattern = "_".join(step.op for step in members)
        attributes = {"Composite": f"{COMPILER}.{draft.op}", "PartitionedFromPattern": pattern}
        return relay.Call(_with_attrs(function, attributes), [self.value(outer) for outer in params])


def _with_attrs(function: Any, attributes: dict[str, str]) -> Any:
    for key, value in attributes.items():
        function = function.with_attr(key, value)
    return function
