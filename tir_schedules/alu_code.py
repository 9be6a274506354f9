"""Nests that compute in LRM: instruction selection for expressions, and folds."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from epu.simulator.elementwise import Alu, Lut
from epu.simulator.instruction import Instruction
from epu.simulator.operands import SIZES, Imm, Lrm
from epu.simulator.reductions import AllReduce, Reduce

from . import nest as tree
from .kernel_code import Constant, LrmValue, ScalarImm, extents
from .lrm import LrmAllocator
from .nest import Access, Expression, Key, Loop, Nest
from .places import Places, variables

Value = LrmValue | Constant
FOLDS = {"add": "sum", "max": "max", "min": "min", "add24": "sum24"}
ROUNDED_PRODUCTS = ("mulr", "mulrf")


def compute(nest: Nest, places: Places, lrm: LrmAllocator) -> list[Instruction]:
    """``target = expression`` for each element."""
    selector = Selector(nest, places, lrm)
    selector.store(places.lrm_value(nest.target, nest), nest.value, nest.of_kind("local"))
    return selector.code


def fold(nest: Nest, places: Places, lrm: LrmAllocator) -> list[Instruction]:
    """``target = fold(target, expression)``: within each PE, then over neighbouring columns."""
    selector, kept = Selector(nest, places, lrm), variables(nest.target)
    local = nest.of_kind("local")
    leading = tuple(loop for loop in local if loop.var in kept)
    reduced = tuple(loop for loop in local if loop.var not in kept)
    value, dst = selector.operand(nest.value), places.lrm_value(nest.target, nest).over(leading)
    grid, code = places.grid(nest), selector.code
    if reduced and isinstance(value, LrmValue):
        loops = (*leading, *reduced)
        code.append(Reduce(FOLDS[nest.fold], grid, extents(loops), len(reduced), dst, value.over(loops), True))
    elif nest.fold == "add24":
        assert isinstance(value, LrmValue), "a rounded sum adds up data"
        single = Lrm(value.over(leading).addr, value.operand.dtype, (*value.over(leading).strides, 0))
        code.append(Reduce("sum24", grid, (*extents(leading), 1), 1, dst, single, True))
    else:
        code.append(Alu(nest.fold, grid, extents(leading), dst, dst, value.over(leading)))
    selector.release(nest.value)
    across = [loop.extent for loop in nest.of_kind("col") if loop.var not in kept and loop.extent > 1]
    if across:
        assert nest.fold != "add24", "a sum in order runs within one PE"
        code.append(AllReduce(FOLDS[nest.fold], grid, extents(leading), dst, dst, prod(across)))
    return code


class Selector:
    """Instruction selection for the expression of one nest: common parts once, temporaries in LRM."""

    def __init__(self, nest: Nest, places: Places, lrm: LrmAllocator) -> None:
        self.nest, self.places, self.lrm, self.grid = nest, places, lrm, places.grid(nest)
        self.code: list[Instruction] = []
        self.values: dict[Expression, Value] = {}
        self.uses: dict[Expression, int] = {}
        self._count(nest.value)

    def _count(self, value: Expression) -> None:
        self.uses[value] = self.uses.get(value, 0) + 1
        if self.uses[value] == 1:
            for part in _parts(value):
                self._count(part)

    def release(self, value: Expression) -> None:
        """One use of ``value`` is over; its LRM is free after the last."""
        self.uses[value] -= 1
        if self.uses[value] == 0 and value in self.values:
            done = self.values.pop(value)
            if isinstance(done, LrmValue) and done.temporary:
                self.lrm.give(done.operand.addr, done.temporary)

    def operand(self, value: Expression) -> Value:
        """Where a value lies; computed first if need be."""
        if value not in self.values:
            self.values[value] = self._make(value)
        return self.values[value]

    def _make(self, value: Expression) -> Value:
        if value[0] == "imm":
            return Constant(Imm(value[1]))
        if value[0] == "scalar":
            return Constant(ScalarImm(0, value[1]))
        if value[0] == "load":
            return self.places.lrm_value(Access(value[1], value[2]), self.nest)
        return self._temporary(value)

    def _temporary(self, value: Expression) -> LrmValue:
        """Compute into a new LRM vector over just the loops that the value depends on."""
        dtype = self.places.buffers[value[1]].dtype if value[0] == "lut" else value[2]
        used = {var for access in tree.loads(value) for var in variables(access)}
        loops = tuple(loop for loop in self.nest.of_kind("local") if loop.var in used and loop.extent > 1)
        strides: dict[Key, int] = {}
        step = SIZES[dtype]
        for loop in reversed(loops):
            strides[loop.var], step = step, step * loop.extent
        for part in _parts(value):  # operands first, so that their LRM can be reused afterwards
            self.operand(part)
        target = LrmValue(Lrm(self.lrm.take(step), dtype, ()), strides, step)
        self.store(target, value, loops)
        return target

    def store(self, target: LrmValue, value: Expression, loops: tuple[Loop, ...]) -> None:
        """Compute ``value`` over ``loops`` straight into ``target``."""
        if value[0] == "lut":
            self._lut(target.over(loops), value, loops)
            return
        operation, saturate = self._operation(value)
        arguments = [self.operand(part).over(loops) for part in operation[3:]]
        if operation[1] in ROUNDED_PRODUCTS and arguments[3] == Imm(0):
            arguments = arguments[:3]
        dst = target.over(loops)
        self.code.append(Alu(operation[1], self.grid, extents(loops), dst, *arguments, saturate=saturate))
        for part in operation[3:]:
            self.release(part)

    def _operation(self, value: Expression) -> tuple[Expression, bool]:
        """(operation, saturate): a clip or move of a result that nobody else needs becomes part of its operation."""
        if value[0] != "op":
            return ("op", "mov", "", value), False
        if value[1] not in ("sat", "mov"):
            return value, False
        inner = value[3]
        fusible = (
            inner[0] == "op" and inner[1] not in ("sat", "mov") and self.uses[inner] == 1 and inner not in self.values
        )
        return (inner if fusible else ("op", "mov", value[2], inner)), value[1] == "sat"

    def _lut(self, dst: Lrm, value: Expression, loops: tuple[Loop, ...]) -> None:
        info = self.places.buffers[value[1]]
        table = Lrm(self.places.address[value[1]], info.dtype, ())
        index = value[2]
        low_byte = index[0] == "op" and index[1] == "and" and index[4] == ("imm", 255) and self._is_byte(index[3])
        source = self.operand(index[3] if low_byte else index).over(loops)
        assert isinstance(source, Lrm), "a table look-up needs an index in LRM"
        if low_byte:  # the byte's own bits, read as unsigned
            source = replace(source, dtype="u8")
        self.code.append(Lut(self.grid, extents(loops), dst, table, source, prod(info.shape)))
        self.release(index)

    def _is_byte(self, value: Expression) -> bool:
        return value[0] == "load" and self.places.buffers[value[1]].dtype in ("i8", "u8")


def _parts(value: Expression) -> tuple[Expression, ...]:
    if value[0] == "op":
        return tuple(value[3:])
    return (value[2],) if value[0] == "lut" else ()
