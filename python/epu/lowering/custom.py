"""Custom operators with a kernel of the user: bound to its tensors, and compared with its reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epu.constants import integer_range
from epu.custom_ops import CustomCall, CustomKernel, CustomOp, call_of, definition
from epu.graph import Fixed, Graph, Node, Tensor
from epu.lowering.custom_splits import prim_func_splits
from epu.lowering.lowered import Lowered, bind_arrays, dtype_of
from epu.lowering.split import Splits
from epu.operators.custom import reference

if TYPE_CHECKING:
    from epu.tir_schedules.kernel import Kernel, Param

SEED = 0
INT32 = integer_range("int32")


def lower_custom(node: Node, graph: Graph, rounding: str) -> Lowered:
    """The user's kernel. Raises UserError where it does not fit its tensors or differs from the reference."""
    call, op = call_of(node, graph, rounding), definition(node)
    given = _given(call, op)
    kernel = _kernel(call, given)
    names = {param: _operand(call, param, index).name for param, index in given.operands.items()}
    inputs, constants = bind_arrays(graph, names)
    constants.update({name: np.asarray(values) for name, values in given.constants.items()})
    scalars = {name: int(value) for name, value in given.scalars.items()}
    outputs = {kernel.outputs[0]: node.outputs[0]}
    lowered = Lowered(node, kernel, inputs, outputs, constants, scalars)
    _check_parameters(call, lowered)
    lowered.splits = _splits(call, op, given, kernel)
    _check_reference(call, lowered, graph)
    return lowered


def _splits(call: CustomCall, op: CustomOp, given: CustomKernel, kernel: Kernel) -> Splits | None:
    """Those of the user for a kernel of our families, those that follow for a PrimFunc."""
    from epu.tir_schedules.custom_kernel import is_prim_func, rekeyed

    if is_prim_func(given.function):
        return prim_func_splits(call, given, kernel, lambda part: _kernel(part, _given(part, op)))
    if given.splits is None:
        return None
    build = given.splits.build
    return replace(given.splits, build=lambda shape: rekeyed(build(shape)))


def _given(call: CustomCall, op: CustomOp) -> CustomKernel:
    assert op.kernel is not None, f"{op.name}: compose_custom_ops has replaced it"
    given = call.ask("kernel", op.kernel, call)
    if not isinstance(given, CustomKernel):
        raise call.refuse("kernel must return a CustomKernel", type(given).__name__, "Wrap it")
    return given


def _operand(call: CustomCall, param: str, index: int) -> Tensor:
    if not 0 <= index < len(call.inputs):
        raise call.refuse(
            f"operands must name one of {len(call.inputs)} inputs", f"{index} for '{param}'", "Correct it"
        )
    return call.inputs[index]


def _kernel(call: CustomCall, given: CustomKernel) -> Kernel:
    from epu.tir_schedules.custom_kernel import is_prim_func, rekeyed, script_kernel
    from epu.tir_schedules.kernel import Kernel

    if isinstance(given.function, Kernel):
        return rekeyed(given.function)
    if not is_prim_func(given.function):
        raise call.refuse("function must be a PrimFunc or a Kernel", type(given.function).__name__, "Build one")
    computed = {name for name, index in given.operands.items() if _operand(call, name, index).data is None}
    fixed = {*given.constants, *(given.operands.keys() - computed)}
    try:
        return script_kernel(call.op, given.function, frozenset(fixed), frozenset(computed))
    except ValueError as error:
        raise call.refuse("the PrimFunc must be schedulable (docs/custom_ops.md)", error, "Rewrite it") from error


def _check_parameters(call: CustomCall, lowered: Lowered) -> None:
    """Every parameter has a value, of its size and dtype, and every value a parameter."""
    params = {param.name: param for param in lowered.kernel.params}
    bound = {*lowered.inputs, *lowered.constants, *lowered.scalars, *lowered.outputs}
    if bound != params.keys() or len(lowered.kernel.outputs) != 1:
        raise call.refuse(
            f"the kernel's parameters {sorted(params)} must be operands, constants, scalars and one output",
            sorted(bound),
            "Name each once",
        )
    for name, role in _roles(lowered):
        if params[name].role != role:
            raise call.refuse(f"parameter '{name}' must be {role}", params[name].role, "Correct its role")
    tensors = {**lowered.inputs, **lowered.outputs}
    typed = {tensor.name: tensor for tensor in (*call.inputs, call.result)}
    for name, tensor in tensors.items():
        _check_array(call, params[name], prod(typed[tensor].shape), dtype_of(typed[tensor]))
    for name, values in lowered.constants.items():
        _check_array(call, params[name], values.size, str(values.dtype))


def _roles(lowered: Lowered) -> Iterator[tuple[str, str]]:
    bound = (("input", lowered.inputs), ("constant", lowered.constants), ("scalar", lowered.scalars))
    return ((name, role) for role, names in bound for name in names)


def _check_array(call: CustomCall, param: Param, size: int, dtype: str) -> None:
    if (prod(param.shape), param.dtype) != (size, dtype):
        found = f"{prod(param.shape)} of {param.dtype}"
        raise call.refuse(f"parameter '{param.name}' must hold {size} elements of {dtype}", found, "Correct the kernel")


def _check_reference(call: CustomCall, lowered: Lowered, graph: Graph) -> None:
    """The kernel on LLVM equals the reference on a sample that holds the ends of each input."""
    from epu.tir_schedules import golden

    random = np.random.default_rng(SEED)
    values: dict[str, NDArray[Any]] = {each.name: _sample(random, each) for each in call.inputs}
    arguments = {param: values[name] for param, name in lowered.inputs.items()}
    given = {**arguments, **lowered.constants, **lowered.scalars}
    found = call.ask("the kernel on LLVM", golden.run, lowered.kernel, given)
    result = found[lowered.kernel.outputs[0]].reshape(call.result.shape)
    (expected,) = reference(lowered.node, graph, values, call.rounding)
    wrong = np.argwhere(result != expected)
    if wrong.size:
        at = tuple(int(each) for each in wrong[0])
        raise call.refuse(
            f"golden must equal the reference ({call.rounding} rounding)",
            f"{len(wrong)} of {expected.size} elements that differ, at {at} {result[at]} for {expected[at]}",
            "Correct the kernel or the reference",
        )


def _sample(random: np.random.Generator, tensor: Tensor) -> NDArray[Any]:
    """Raw integers of a tensor: a constant's own, else uniform within its range, the ends first."""
    if tensor.data is not None:
        return np.asarray(tensor.data)
    low, high = _limits(tensor)
    values = random.integers(low, high, tensor.shape, np.int64, endpoint=True)
    ends = np.array([low, high, 0 if low <= 0 <= high else low])[: values.size]
    values.reshape(-1)[: ends.size] = ends
    return values.astype(dtype_of(tensor))


def _limits(tensor: Tensor) -> tuple[int, int]:
    if not isinstance(tensor.type, Fixed) or tensor.range is None:
        return integer_range(dtype_of(tensor))
    low, high = (int(np.clip(np.rint(end * 2.0**tensor.type.frac), *INT32)) for end in tensor.range)
    return low, high
