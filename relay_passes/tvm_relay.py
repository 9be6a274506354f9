"""The one door to Relay: every other module of this folder takes ``tvm`` and ``relay`` from here.

Importing this module imports TVM; nothing imports it at ``import epu`` time. ``tvm_target`` repairs what plain
``"llvm"`` means; ``install_onnx_mapping`` puts back what ``relay.frontend.from_onnx`` needs.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import tvm
from tvm import relay

from epu.relay_passes.tvm_target import HOST, host_target

__all__ = ["HOST", "host_target", "install_onnx_mapping", "relay", "span_name", "span_of", "span_output", "tvm"]

OUTPUT_MARK = "@@"  # hhb-tvm's from_onnx names the calls that make outputs "tensor@@node"


def span_of(name: str, output: int = 0) -> Any:
    """Span that carries an ONNX node (or initializer) name, and which output is made, through Relay's passes."""
    return relay.Span(relay.SourceName(name), output, 0, 0, 0)


def span_output(span: Any) -> int:
    """Output index that a span carries."""
    return int(getattr(span, "line", 0)) if span is not None else 0


def span_name(span: Any) -> str:
    """Name a span carries, the last one where spans were joined; ``""`` for no span."""
    if span is None:
        return ""
    last = span.spans[-1] if hasattr(span, "spans") else span
    return str(last.source_name.name).rpartition(OUTPUT_MARK)[2]


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
