"""A Relay function as a flat list of plain records: composites opened, tuples spread, shapes and names at hand."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from epu.relay_passes.tvm_relay import relay, span_name, span_output, tvm
from epu.simulator.errors import UserError

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Source:
    """Parameter of the function."""

    name: str
    shape: Shape
    dtype: str
    origin: Any = None


@dataclass(frozen=True, eq=False)
class Const:
    """Constant, with its ONNX name where the importer left one."""

    data: NDArray[Any]
    name: str = ""

    @property
    def shape(self) -> Shape:
        return tuple(self.data.shape)

    @property
    def dtype(self) -> str:
        return str(self.data.dtype)


@dataclass(frozen=True, eq=False)
class Step:
    """One call of a Relay operator; ``index`` is its place in the topological order, ``span`` its ONNX node."""

    op: str
    args: tuple[Operand, ...]
    attrs: Any
    span: str
    shape: Shape
    dtype: str
    index: float
    origin: Any = None
    output: int = 0  # which output of the ONNX node


Operand = Source | Const | Step


@dataclass(frozen=True)
class View:
    """Records of one function, in topological order."""

    inputs: tuple[Source, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Operand, ...]


def view_function(function: Any) -> View:
    """Flat view of a type-checked Relay function; raises ``UserError`` for control flow and dynamic shapes."""
    return _Viewer().view(function)


def same_node(first: Step, second: Step) -> bool:
    """Both calls come from one ONNX node, or from code without spans."""
    return first.span == second.span


def same_onnx_node(first: Step, second: Step) -> bool:
    """Both calls are known to come from one ONNX node."""
    return bool(first.span) and first.span == second.span


def static_type(name: str, tensor: Any) -> tuple[Shape, str]:
    """Shape and dtype of a Relay tensor type."""
    if not isinstance(tensor, tvm.ir.TensorType):
        raise UserError(f"Relay expression '{name}': it must be a tensor, found {type(tensor).__name__}. Inline it.")
    if not all(isinstance(dim, tvm.tir.IntImm) for dim in tensor.shape):
        raise UserError(
            f"Relay expression '{name}': its shape must be static, found {list(tensor.shape)}. "
            "Import the model with fixed input shapes."
        )
    return tuple(int(dim) for dim in tensor.shape), str(tensor.dtype)


def post_order(body: Any, stop: Container[Any] = ()) -> Iterator[Any]:
    """Every expression of ``body`` but what ``stop`` holds, operands first, without function bodies or recursion."""
    seen: set[Any] = set()
    stack = [(body, False)]
    while stack:
        expr, ready = stack.pop()
        if ready:
            yield expr
        elif expr not in seen and expr not in stop:
            seen.add(expr)
            stack.append((expr, True))
            stack.extend((child, False) for child in reversed(_children(expr)) if child not in seen)


def outside_operands(call: Any, inside: Container[Any]) -> list[Any]:
    """Computed tensors that ``call`` reads (also within a tuple) and that are not ``inside``."""
    spread = [item for arg in _children(call) for item in (arg.fields if isinstance(arg, relay.Tuple) else [arg])]
    return [item for item in spread if not isinstance(item, relay.Constant) and item not in inside]


def replace_operands(expr: Any, made: Mapping[Any, Any]) -> Any:
    """``expr`` with its operands replaced; spans and attributes stay."""
    if isinstance(expr, relay.Call):
        return relay.Call(expr.op, [made[arg] for arg in expr.args], expr.attrs, expr.type_args, expr.span)
    if isinstance(expr, relay.Tuple):
        return relay.Tuple([made[item] for item in expr.fields], expr.span)
    if isinstance(expr, relay.TupleGetItem):
        return relay.TupleGetItem(made[expr.tuple_value], expr.index, expr.span)
    return expr


def _children(expr: Any) -> list[Any]:
    if isinstance(expr, relay.Call):
        return list(expr.args)
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    if isinstance(expr, relay.TupleGetItem):
        return [expr.tuple_value]
    if isinstance(expr, (relay.Var, relay.Constant)):
        return []
    raise UserError(
        f"Relay expression {type(expr).__name__}: the EPU takes straight-line code, found control flow. "
        "Convert the function to graph normal form."
    )


@dataclass
class _Viewer:
    steps: list[Step] = field(default_factory=list)

    def view(self, function: Any) -> View:
        inputs = [self._source(param) for param in function.params]
        seen = dict(zip(function.params, inputs))
        result = self._walk(function.body, seen)
        outputs = result if isinstance(result, tuple) else (result,)
        return View(tuple(inputs), tuple(self.steps), outputs)

    @staticmethod
    def _source(param: Any) -> Source:
        return Source(param.name_hint, *static_type(param.name_hint, param.checked_type), origin=param)

    def _walk(self, body: Any, seen: dict[Any, Any]) -> Any:
        for expr in post_order(body):
            if expr not in seen:
                seen[expr] = self._record(expr, seen)
        return seen[body]

    def _record(self, expr: Any, seen: dict[Any, Any]) -> Any:
        if isinstance(expr, relay.Call):
            return self._call(expr, [seen[arg] for arg in expr.args])
        if isinstance(expr, relay.Tuple):
            return tuple(seen[item] for item in expr.fields)
        if isinstance(expr, relay.Constant):
            return Const(expr.data.numpy(), span_name(expr.span))
        if isinstance(expr, relay.TupleGetItem):
            return self._item(expr, seen[expr.tuple_value])
        raise UserError(f"Relay variable '{expr.name_hint}': a parameter must bind it, found none. Bind it.")

    def _call(self, call: Any, args: list[Any]) -> Any:
        if isinstance(call.op, relay.Function) and call.op.attrs and "Composite" in call.op.attrs:
            return self._walk(call.op.body, dict(zip(call.op.params, args)))
        name = call.op.name if isinstance(call.op, tvm.ir.Op) else str(getattr(call.op, "name_hint", "function"))
        flat = tuple(operand for arg in args for operand in (arg if isinstance(arg, tuple) else (arg,)))
        return self._append(name, flat, call)

    def _append(self, name: str, args: tuple[Operand, ...], expr: Any) -> Any:
        span = span_name(expr.span)
        if isinstance(expr.checked_type, tvm.ir.TupleType):
            shape, dtype = (), "tuple"
        else:
            shape, dtype = static_type(span or name, expr.checked_type)
        attrs = getattr(expr, "attrs", None)
        step = Step(name, args, attrs, span, shape, dtype, float(len(self.steps)), expr, span_output(expr.span))
        self.steps.append(step)
        return step

    def _item(self, expr: Any, value: Any) -> Any:
        if isinstance(value, tuple):
            return value[expr.index]
        return self._append(f"{value.op}.{expr.index}", (value,), expr)
