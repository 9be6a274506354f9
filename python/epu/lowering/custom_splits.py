"""How a user's PrimFunc is cut where the OCM is too small for it: the operator's ``kernel`` is asked for a smaller one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from epu.custom_ops import CustomCall, CustomKernel
from epu.graph import Tensor
from epu.lowering.split import Splits, by_extents

if TYPE_CHECKING:
    from epu.tir_schedules.kernel import Kernel

Build = Callable[[CustomCall], "Kernel"]


def prim_func_splits(call: CustomCall, given: CustomKernel, kernel: Kernel, build: Build) -> Splits | None:
    """Splits along the axes of the output that nothing reduces; None where parameters are not of their tensors' shapes.

    ``build`` makes the kernel of a call with smaller tensors.
    """
    shapes = {param.name: param.shape for param in kernel.arrays}
    bound = {**{name: call.inputs[index] for name, index in given.operands.items()}, kernel.outputs[0]: call.result}
    if any(shapes[name] != tuple(tensor.shape) for name, tensor in bound.items()):
        return None
    reduced = {axis for axes in kernel.reduced.values() for axis in axes}
    sizes = dict(zip(kernel.axes[kernel.outputs[0]], call.result.shape))
    free = {axis: size for axis, size in sizes.items() if axis not in reduced and size > 1}

    def smaller(extents: tuple[int, ...]) -> Kernel:
        cut = dict(zip(free, extents))
        made = build(_smaller_call(call, given, kernel, cut))
        _check(call, kernel, made, cut)
        return made

    return by_extents(list(free), list(free.values()), smaller)


def _smaller_call(call: CustomCall, given: CustomKernel, kernel: Kernel, cut: Mapping[str, int]) -> CustomCall:
    inputs = list(call.inputs)
    for name, index in given.operands.items():
        inputs[index] = _cut(call.inputs[index], kernel.axes[name], cut)
    output = _cut(call.result, kernel.axes[kernel.outputs[0]], cut)
    return replace(call, inputs=tuple(inputs), output=output)


def _cut(tensor: Tensor, axes: tuple[str, ...], cut: Mapping[str, int]) -> Tensor:
    """The first part of a tensor along the axes that are cut."""
    shape = tuple(cut.get(axis, size) for axis, size in zip(axes, tensor.shape))
    data = None if tensor.data is None else tensor.data[tuple(slice(size) for size in shape)]
    return replace(tensor, shape=shape, data=data)


def _check(call: CustomCall, kernel: Kernel, made: Kernel, cut: Mapping[str, int]) -> None:
    """The smaller kernel has the same axes, and each parameter the size of its part."""
    wanted = {p.name: tuple(cut.get(a, n) for a, n in zip(kernel.axes[p.name], p.shape)) for p in kernel.arrays}
    found = {param.name: param.shape for param in made.arrays}
    if found != wanted or made.axes != kernel.axes:
        raise call.refuse(
            f"kernel must build the part of shapes {wanted}, because the whole exceeds the OCM",
            found,
            "Take all shapes from the call's tensors",
        )
