"""Hooks in TVM: building for target "epu" partitions first, and errors of ours reach the user with their text."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

import tvm
from tvm.target import Target

from epu.relay_passes import runtime
from epu.relay_passes.tvm_target import is_epu

Method = Callable[..., Any]
MARK = "_epu_hook"

_kept = threading.local()


def wrap(owner: Any, name: str, wrapper: Callable[[Method], Method]) -> None:
    """Replace the method ``owner.name`` by ``wrapper`` of it, once."""
    method = getattr(owner, name, None)
    if method is None or hasattr(method, MARK):
        return
    wrapped = functools.wraps(method)(wrapper(method))
    setattr(wrapped, MARK, True)
    setattr(owner, name, wrapped)


def targets(target: Any) -> list[Any]:
    """All targets that the argument of a build (text, Target, list, dict, None) stands for."""
    chosen = Target.current(allow_none=True) if target is None else target
    return [] if chosen is None else list(Target.canon_multi_target(chosen))


def partitions(build: Method) -> Method:
    """A build method whose module is partitioned first where a target is the EPU."""
    signature = inspect.signature(build)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs).arguments
        if any(map(is_epu, targets(bound.get("target")))):
            bound["mod"] = _partitioned(bound["self"], bound["mod"], bound.get("params"))
        return build(**bound)

    return raises(wrapped)


def _partitioned(builder: Any, module: Any, params: Any) -> Any:
    from epu.build_options import current
    from epu.relay_passes.partition import partition_for_epu

    return partition_for_epu(module, params or getattr(builder, "epu_params", None), current().exclude)


def remembers_params(set_params: Method) -> Method:
    """``VMCompiler.set_params`` that keeps the parameters for ``lower`` to bind."""

    def wrapped(self: Any, params: Any) -> Any:
        self.epu_params = params
        return set_params(self, params)

    return wrapped


def raises(method: Method) -> Method:
    """``method``, which raises our own exception where TVM only knows that there was one."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        _forget_errors()
        try:
            return method(*args, **kwargs)
        except tvm.TVMError as failure:
            own = _own_error()
            if own is None:
                raise
            raise own from failure

    return wrapped


def compile_function(function: Any) -> Any:
    """``relay.ext.epu``: runtime module of a Relay function, what TVM calls while it builds."""
    try:
        from epu.relay_passes.codegen import compile_function

        return compile_function(function)
    except Exception as error:
        _kept.error = error
        raise


def _own_error() -> Exception | None:
    """The exception of this thread's last run or compilation."""
    return runtime.last_error() or getattr(_kept, "error", None)


def _forget_errors() -> None:
    _kept.error = None
    runtime.forget_error()


def repairs_first(from_onnx: Method) -> Method:
    """``from_onnx`` that repairs its converters before they are used."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        from epu.relay_passes import from_onnx_repairs

        from_onnx_repairs.install()
        return from_onnx(*args, **kwargs)

    return wrapped


def hook_from_onnx(relay: Any) -> None:
    """Repair the ONNX importer wherever it can be taken from."""
    for owner in (relay.frontend.onnx, relay.frontend):
        wrap(owner, "from_onnx", repairs_first)


def hook_builders(relay: Any) -> None:
    """Hooks of everything that builds a Relay module, and the code generator."""
    tvm.register_func("relay.ext.epu", compile_function, override=True)
    wrap(relay.build_module.BuildModule, "build", partitions)
    wrap(relay.build_module.BuildModule, "optimize", partitions)
    wrap(relay.vm.VMCompiler, "set_params", remembers_params)
    wrap(relay.vm.VMCompiler, "lower", partitions)
    wrap(relay.vm.VMCompiler, "codegen", raises)


def hook_executors(module: Any) -> None:
    """Hooks of the classes in ``module`` that run a built module."""
    for owner, name in (("GraphModule", "run"), ("GraphModuleDebug", "run"), ("VirtualMachine", "invoke")):
        if hasattr(module, owner):
            wrap(getattr(module, owner), name, raises)
