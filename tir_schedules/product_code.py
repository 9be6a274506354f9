"""Nests that sum int8 products: Mac where one operand comes over the bus, MacLocal where both lie in LRM."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from epu.simulator.instruction import Instruction
from epu.simulator.matrix import Mac, MacLocal

from .kernel_code import ParamOcm, extents
from .nest import Access, Key, Loop, Nest
from .places import Places, array_strides, variables


def is_product(nest: Nest, places: Places) -> bool:
    """Whether a nest adds products of two bytes to an int32."""
    value = nest.value
    if nest.fold != "add" or value[0] != "op" or value[1] != "mul":
        return False
    bytes_only = all(part[0] == "load" and places.buffers[part[1]].dtype in ("i8", "u8") for part in value[3:5])
    return bytes_only and places.buffers[nest.target.buffer].dtype == "i32"


def product(nest: Nest, places: Places) -> Instruction:
    """The instruction of a product nest."""
    left, right = (Access(part[1], part[2]) for part in nest.value[3:5])
    if places.is_lrm(left.buffer) and places.is_lrm(right.buffer):
        return _mac_local(nest, left, right, places)
    return _mac(nest, *((left, right) if places.is_lrm(left.buffer) else (right, left)), places)


def _mac(nest: Nest, left: Access, right: Access, places: Places) -> Mac:
    """``left`` travels round the ring, ``right`` comes over the bus."""
    grid, ring = places.grid(nest), next(iter(nest.of_kind("ring")), Loop(0, 1, "ring"))
    in_acc, in_a, local = variables(nest.target), variables(left), nest.of_kind("local")
    m = tuple(loop for loop in local if loop.var in in_acc and loop.var in in_a)
    n = tuple(loop for loop in local if loop.var in in_acc and loop.var not in in_a)
    k = tuple(loop for loop in local if loop.var not in in_acc)
    a = places.lrm_value(left, nest)
    name, address, strides = places.flat(right)
    depth, a_step, b_step = _one_walk(k, a.strides, strides)
    steps = (*(strides.get(loop.var, 0) for loop in n), strides.get(ring.var, 0), b_step)
    col = array_strides(nest, strides, "col", len(grid.cols))
    b = ParamOcm(address, places.buffers[right.buffer].dtype, (), col, steps, name)
    acc, over_m = places.lrm_value(nest.target, nest).over((*m, *n)), a.over(m)
    return Mac(
        grid, extents(m), extents(n), ring.extent, depth, acc, replace(over_m, strides=(*over_m.strides, a_step)), b
    )


def _mac_local(nest: Nest, left: Access, right: Access, places: Places) -> MacLocal:
    kept, local = variables(nest.target), nest.of_kind("local")
    leading = tuple(loop for loop in local if loop.var in kept)
    loops = (*leading, *(loop for loop in local if loop.var not in kept))
    acc = places.lrm_value(nest.target, nest).over(leading)
    a, b = (places.lrm_value(part, nest).over(loops) for part in (left, right))
    return MacLocal(places.grid(nest), extents(loops), len(loops) - len(leading), acc, a, b)


def _one_walk(loops: tuple[Loop, ...], first: dict[Key, int], second: dict[Key, int]) -> tuple[int, int, int]:
    """(count, stride, stride) of several loops as one, where both operands walk them evenly."""
    real = [loop for loop in loops if loop.extent > 1]
    if not real:
        return 1, 1, 1
    walks = sorted(((first.get(x.var, 0), second.get(x.var, 0), x.extent) for x in real), reverse=True)
    for (outer_a, outer_b, _), (inner_a, inner_b, extent) in zip(walks, walks[1:]):
        if (outer_a, outer_b) != (inner_a * extent, inner_b * extent):
            raise ValueError("the reduction of a Mac is not one even walk through both operands")
    return prod(x.extent for x in real), walks[-1][0], walks[-1][1]
