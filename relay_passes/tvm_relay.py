"""The one door to TVM's Relay: every other module of this folder takes ``tvm`` and ``relay`` from here.

Importing this module imports TVM; nothing imports it at ``import epu`` time. It also repairs two things that the
one wheel with Relay on PyPI (hhb-tvm) gets wrong: plain ``"llvm"`` means RISC-V there, and ``onnx.mapping`` is gone.
"""

from __future__ import annotations

import platform
import sys
import types
from typing import Any

import tvm
from tvm import relay
from tvm.target.tag import register_tag

__all__ = ["HOST", "host_target", "install_onnx_mapping", "relay", "span_name", "span_of", "tvm"]


def _host() -> dict[str, Any]:
    machine = platform.machine()
    if tvm.target.codegen.llvm_get_system_triple().startswith(machine):
        return {"kind": "llvm"}
    return {"kind": "llvm", "mtriple": f"{machine}-linux-gnu"}


HOST = _host()  # target of the code that surrounds the EPU
if "mtriple" in HOST:
    register_tag("llvm", HOST, True)


def host_target() -> Any:
    """Target of host code, with itself as host."""
    return tvm.target.Target(HOST, HOST)


def span_of(name: str) -> Any:
    """Span that carries an ONNX node (or initializer) name through Relay's passes."""
    return relay.Span(relay.SourceName(name), 0, 0, 0, 0)


def span_name(span: Any) -> str:
    """Name a span carries, the last one where spans were joined; ``""`` for no span."""
    if span is None:
        return ""
    if hasattr(span, "spans"):
        return str(span.spans[-1].source_name.name)
    return str(span.source_name.name)


def install_onnx_mapping() -> None:
    """Put ``onnx.mapping`` back (removed in onnx 1.19): ``relay.frontend.from_onnx`` imports it."""
    import onnx

    if hasattr(onnx, "mapping"):
        return
    module = types.ModuleType("onnx.mapping")
    module.TENSOR_TYPE_TO_NP_TYPE = _tensor_types()  # type: ignore[attr-defined]
    module.NP_TYPE_TO_TENSOR_TYPE = {  # type: ignore[attr-defined]
        numpy_type: onnx_type for onnx_type, numpy_type in _tensor_types().items()
    }
    sys.modules["onnx.mapping"] = module
    onnx.mapping = module  # type: ignore[attr-defined]


def _tensor_types() -> dict[int, Any]:
    from onnx import TensorProto, helper

    undefined = TensorProto.UNDEFINED
    return {
        value: helper.tensor_dtype_to_np_dtype(value) for value in TensorProto.DataType.values() if value != undefined
    }
