"""``relay.ext.epu``: one partitioned Relay function → EPU program → host module that calls the runtime with it."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from epu.graph import Graph
from epu.relay_passes.relay_view import static_type
from epu.relay_passes.runtime import NAME
from epu.relay_passes.to_graph import to_graph
from epu.relay_passes.tvm_relay import host_target, tvm
from epu.simulator.program import Program

FAILED = "the EPU program failed; epu.last_error() has the reason"


def compile_function(function: Any) -> Any:
    """Runtime module of a Relay function for the EPU."""
    from epu.build_options import current
    from epu.compiler import compile_graph

    symbol = str(function.attrs["global_symbol"])
    graph = to_graph(function, symbol)
    options = current()
    program = compile_graph(graph, options.machine, rounding=options.rounding, name=symbol).program
    _check_order(program, graph)
    return tvm.build(tvm.IRModule({symbol: _caller(function, symbol, program)}), target=host_target())


def _check_order(program: Program, graph: Graph) -> None:
    """The runtime passes tensors by position."""
    assert [buffer.name for buffer in program.inputs] == graph.inputs
    assert [buffer.name for buffer in program.outputs] == graph.outputs


def _caller(function: Any, symbol: str, program: Program) -> Any:
    """PrimFunc that hands its tensors and the program's bytes to ``epu.runtime.run``."""
    from tvm import te, tir

    data = program.to_bytes()
    digest, blob = hashlib.sha256(data).hexdigest(), base64.b64encode(data).decode()
    inputs = [te.placeholder(*static_type(p.name_hint, p.checked_type), name=p.name_hint) for p in function.params]
    shapes, dtypes = zip(*_result_types(function))

    def call(ins: Any, outs: Any) -> Any:
        status = tir.Var("status", "int32")
        failed = tir.AssertStmt(status == 0, tir.StringImm(FAILED), tir.Evaluate(0))
        return tir.LetStmt(status, tir.call_packed(NAME, digest, blob, len(inputs), *ins, *outs), failed)

    outputs = te.extern(list(shapes), inputs, call, name=symbol, dtype=list(dtypes))
    results = [outputs] if isinstance(outputs, te.Tensor) else list(outputs)
    body = te.create_prim_func([*inputs, *results])
    return body.with_attr("global_symbol", symbol).with_attr("tir.noalias", False)


def _result_types(function: Any) -> list[tuple[tuple[int, ...], str]]:
    kind = function.body.checked_type
    fields = kind.fields if isinstance(kind, tvm.ir.TupleType) else [kind]
    return [static_type("result", field) for field in fields]
