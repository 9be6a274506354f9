"""Reads a scheduled PrimFunc into the plain nests of nest.py, once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .nest import (
    LOOP_KEY,
    TAP_KEY,
    Access,
    Affine,
    Allocate,
    BufferInfo,
    Code,
    Expression,
    Key,
    Loop,
    Nest,
    Repeat,
    Sequence,
    Tree,
    combine,
)
from .tvm_api import tir, tvm

DTYPES = {"int8": "i8", "uint8": "u8", "int32": "i32", "int64": "i64", "bool": "i32"}


def _reads(expr: Any) -> bool:
    """Whether an expression depends on data (not on loop variables alone)."""
    found = []
    tir.stmt_functor.post_order_visit(
        expr, lambda node: found.append(node) if isinstance(node, tir.BufferLoad) else None
    )
    return bool(found)


def _comparison(kind: str, left: Affine, right: Affine) -> Expression:
    """A test on loop variables as ("compare", affine), meaning affine < 0."""
    if kind in ("GT", "GE"):
        left, right = right, left
    return ("compare", combine([(1, left), (-1, right), (0 if kind in ("LT", "GT") else -1, (1, ()))]))


def read_schedule(module: Any) -> Code:
    """Parse the scheduled module (one PrimFunc, block form)."""
    opaque = tvm.transform.Sequential(
        [tir.transform.PlanAndUpdateBufferAllocationLocation(), tir.transform.ConvertBlocksToOpaque()]
    )(module)
    (function,) = opaque.functions.values()
    return _Reader().function(function)


_BINARY = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Max": "max",
    "Min": "min",
    "LT": "lt",
    "LE": "le",
    "EQ": "eq",
    "NE": "ne",
    "And": "and",
    "Or": "or",
}
_SWAPPED = {"GT": "lt", "GE": "le"}
_CALLS = {
    "tir.bitwise_and": "and",
    "tir.bitwise_or": "or",
    "tir.bitwise_xor": "xor",
    "tir.shift_left": "shl",
    "tir.shift_right": "shr",
    "tir.if_then_else": "sel",
}


def _key(node: Any) -> Key:
    return int(node.handle.value)


def affine(expr: Any) -> Affine:
    """Affine form of an index expression; ValueError where it is none."""
    kind = type(expr).__name__
    if kind == "IntImm":
        return int(expr.value), ()
    if kind == "Var":
        return 0, ((_key(expr), 1),)
    if kind == "Cast":
        return affine(expr.value)
    if kind in ("Add", "Sub"):
        return combine([(1, affine(expr.a)), (1 if kind == "Add" else -1, affine(expr.b))])
    if kind == "Mul":
        left, right = affine(expr.a), affine(expr.b)
        if not left[1]:
            return combine([(left[0], right)])
        if not right[1]:
            return combine([(right[0], left)])
    raise ValueError(f"index {expr} is not affine in the loop variables")


@dataclass
class _Reader:
    buffers: dict[Key, BufferInfo] = field(default_factory=dict)
    scalars: dict[Key, str] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)  # keeps TVM objects, and so their keys, alive

    def function(self, function: Any) -> Code:
        self.alive.append(function)
        params: list[tuple[str, Key | None]] = []
        for param in function.params:
            buffer = function.buffer_map.get(param)
            if buffer is None:
                self.scalars[_key(param)] = str(param.name)
                params.append((str(param.name), None))
            else:
                params.append((str(buffer.name), self.buffer(buffer)))
        return Code(self.tree(function.body), self.buffers, tuple(params))

    def buffer(self, buffer: Any) -> Key:
        key = _key(buffer.data)
        if key not in self.buffers:
            self.alive.append(buffer)
            shape = tuple(int(extent) for extent in buffer.shape)
            self.buffers[key] = BufferInfo(key, str(buffer.name), shape, DTYPES[str(buffer.dtype)], str(buffer.scope()))
        return key

    def tree(self, stmt: Any) -> Tree:
        kind = type(stmt).__name__
        if kind == "BlockRealize":
            return self.block(stmt.block, (), "")
        if kind == "SeqStmt":
            return Sequence(tuple(self.tree(each) for each in stmt.seq))
        if kind == "For":
            return self.loop(stmt)
        raise ValueError(f"scheduled TIR holds a {kind} outside a block: {stmt}")

    def block(self, block: Any, loops: tuple[Loop, ...], _: str) -> Tree:
        allocated = tuple(self.buffer(each) for each in block.alloc_buffers)
        if type(block.body).__name__ == "BufferStore":
            return self.nest(block, loops)
        if type(block.body).__name__ == "Evaluate":
            return self.dot(block, loops)
        body = self.tree(block.body)
        return Allocate(allocated, body) if allocated else body

    def loop(self, stmt: Any) -> Tree:
        self.alive.append(stmt)
        kind = str(stmt.annotations[LOOP_KEY]) if LOOP_KEY in stmt.annotations else ""
        if kind:
            return self.collect(stmt, ())
        return Repeat(_key(stmt.loop_var), int(stmt.extent), self.tree(stmt.body))

    def collect(self, stmt: Any, loops: tuple[Loop, ...]) -> Tree:
        """Descend through annotated loops to the block they surround."""
        while type(stmt).__name__ == "For":
            if LOOP_KEY not in stmt.annotations:
                raise ValueError(f"loop {stmt.loop_var} has no annotation inside an annotated nest")
            self.alive.append(stmt)
            loop = Loop(_key(stmt.loop_var), int(stmt.extent), str(stmt.annotations[LOOP_KEY]))
            loops, stmt = (*loops, loop), stmt.body
        return self.block(stmt.block, loops, "")

    def nest(self, block: Any, loops: tuple[Loop, ...]) -> Nest:
        store = block.body
        target = Access(self.buffer(store.buffer), tuple(affine(index) for index in store.indices))
        value = self.expression(store.value)
        tap = str(block.annotations[TAP_KEY]) if TAP_KEY in block.annotations else ""
        own = ("load", target.buffer, target.indices)
        if value[0] == "op" and value[1] in ("add", "max", "min") and value[3] == own:
            return Nest(loops, target, value[4], value[1], tap)
        if value[:2] == ("op", "round24") and value[3][:2] == ("op", "add") and value[3][3] == own:
            addend = value[3][4]  # rounded too: the array's sum24 does that itself
            return Nest(loops, target, addend[3] if addend[:2] == ("op", "round24") else addend, "add24", tap)
        return Nest(loops, target, value, "", tap)

    def dot(self, block: Any, loops: tuple[Loop, ...]) -> Nest:
        """The intrinsic ``epu.dot``: its operand tiles say which elements of which buffers are summed."""
        regions = {_key(match.buffer.data): match.source for match in block.match_buffers}
        pointers = [regions[_key(argument.args[1])] for argument in block.body.value.args[1:]]
        extents = [int(each.extent) for each in pointers[1].region if int(each.extent) > 1]
        summed = tuple(Loop(-1 - index, extent, "local") for index, extent in enumerate(extents))
        acc, a, b = (self.region(pointer, summed) for pointer in pointers)
        product = ("op", "mul", "i32", *(("load", each.buffer, each.indices) for each in (a, b)))
        return Nest((*loops, *summed), acc, product, "add")

    def region(self, region: Any, summed: tuple[Loop, ...]) -> Access:
        """First element of a region, plus a loop for each axis of more than one element."""
        left = iter(summed)
        indices = []
        for each in region.region:
            step = (1, (0, ((next(left).var, 1),))) if int(each.extent) > 1 else (0, (0, ()))
            indices.append(combine([(1, affine(each.min)), step]))
        return Access(self.buffer(region.buffer), tuple(indices))

    def expression(self, expr: Any) -> Expression:
        kind = type(expr).__name__
        if kind == "IntImm":
            return ("imm", int(expr.value))
        if kind == "Var":
            return ("scalar", self.scalars[_key(expr)])
        if kind == "BufferLoad":
            return self.load(expr)
        if kind == "Cast":
            return self.cast(expr)
        dtype = DTYPES[str(expr.dtype)]
        if kind in ("LT", "LE", "GT", "GE") and not _reads(expr):
            return _comparison(kind, affine(expr.a), affine(expr.b))
        if kind in _BINARY:
            return ("op", _BINARY[kind], dtype, self.expression(expr.a), self.expression(expr.b))
        if kind in _SWAPPED:
            return ("op", _SWAPPED[kind], dtype, self.expression(expr.b), self.expression(expr.a))
        if kind == "Not":
            return ("op", "xor", dtype, self.expression(expr.a), ("imm", 1))
        if kind == "Select":
            parts = (expr.condition, expr.true_value, expr.false_value)
            return ("op", "sel", dtype, *(self.expression(part) for part in parts))
        if kind == "Call":
            name = str(expr.op.name)
            short = _CALLS.get(name) or name.removeprefix("tir.epu_")
            return ("op", short, dtype, *(self.expression(argument) for argument in expr.args))
        raise ValueError(f"the array has no operation for {kind}: {expr}")

    def load(self, expr: Any) -> Expression:
        key = self.buffer(expr.buffer)
        try:
            return ("load", key, tuple(affine(index) for index in expr.indices))
        except ValueError:
            (index,) = expr.indices
            return ("lut", key, self.expression(index))

    def cast(self, expr: Any) -> Expression:
        """A widening cast is free (operands are read by value); a narrowing one is a move that wraps."""
        inner = self.expression(expr.value)
        source, dtype = str(expr.value.dtype), str(expr.dtype)
        if source == "bool" or int(source.lstrip("uint")) <= int(dtype.lstrip("uint")):
            return inner
        return ("op", "mov", DTYPES[dtype], inner)
