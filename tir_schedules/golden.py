"""The golden answer: a kernel's unscheduled PrimFunc, compiled by LLVM and run on this machine's CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .kernel import Kernel
from .tvm_api import HOST_TARGET, tvm

_BUILT: dict[tuple[Any, ...], Any] = {}


def build(kernel: Kernel) -> Any:
    """Compiled function of the kernel with its observed stages as extra outputs; compiled once per key."""
    if kernel.key not in _BUILT:
        target = tvm.target.Target(HOST_TARGET, HOST_TARGET)
        _BUILT[kernel.key] = tvm.build(kernel.prim_func(observe=True), target=target)
    return _BUILT[kernel.key]


def run(kernel: Kernel, values: dict[str, NDArray[Any] | int]) -> dict[str, NDArray[Any]]:
    """Outputs and observed stages of the kernel for its inputs, constants and scalars by parameter name."""
    arguments: list[Any] = []
    results: dict[str, Any] = {}
    for param in kernel.params:
        if param.role == "output":
            results[param.name] = tvm.nd.empty(param.shape, param.dtype)
            arguments.append(results[param.name])
        elif param.role == "scalar":
            arguments.append(int(values[param.name]))
        else:
            array = np.ascontiguousarray(values[param.name], param.dtype)
            arguments.append(tvm.nd.array(array.reshape(param.shape)))
    for name in kernel.observed:
        tensor = kernel.tensors[name]
        results[name] = tvm.nd.empty(tuple(int(extent) for extent in tensor.shape), str(tensor.dtype))
        arguments.append(results[name])
    build(kernel)(*arguments)
    return {name: array.numpy() for name, array in results.items()}
