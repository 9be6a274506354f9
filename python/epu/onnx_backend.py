"""ONNX's backend interface on the ISS: ``prepare(model).run(inputs)``, so that ``onnx.backend.test`` runs against the EPU.

A model is compiled at its first run, for the shapes of the inputs, the values of those inputs that the compiler must
know (shapes, axes, scales, weights) and the ranges that ONNX's reference evaluator sees on the inputs. Each result
comes from the ISS; what the EPU cannot run is a ``Refused``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

from epu.errors import UnsupportedNode, UserError
from epu.hw_config import HWConfig
from epu.onnx_forms import Form, Variant
from epu.onnx_shapes import graph_inputs
from epu.raw_tensors import Arrays


class Refused(UnsupportedNode, BackendIsNotSupposedToImplementIt):  # the runner skips the latter
    """What the EPU cannot run. The message names the node or tensor, the limit, the value found and the remedy."""


@contextmanager
def _refusing() -> Iterator[None]:
    """Every error that a user can cause is a refusal to the backend's caller."""
    try:
        yield
    except Refused:
        raise
    except UserError as error:
        raise Refused(str(error)) from error


@dataclass
class EpuRep(BackendRep):
    """A model ready to run; ``last`` is what it was compiled to for the last inputs."""

    model: onnx.ModelProto
    hw_config: HWConfig = field(default_factory=HWConfig)
    rounding: str = "exact"
    last: Variant | None = None

    def __post_init__(self) -> None:
        self._forms: dict[bool, Form] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs in the model's order. ``inputs``: arrays in the order of the graph's inputs, or by name.

        Raises Refused for a model or values that the EPU cannot run.
        """
        with _refusing():
            feeds = {name: _real32(value) for name, value in self._named(inputs).items()}
            self.last = self._variant(feeds)
            values = self.last.run(feeds)
        return tuple(values[each.name].astype(_numpy_type(each)) for each in self.model.graph.output)

    def _named(self, inputs: Any) -> Arrays:
        names = [value.name for value in graph_inputs(self.model)]
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(names):
                raise UserError(f"inputs: the model has {len(names)} ({', '.join(names)}), found {len(inputs)}.")
            inputs = dict(zip(names, inputs, strict=True))
        return {name: np.asarray(inputs[name]) for name in names}

    def _variant(self, feeds: Arrays) -> Variant:
        """From the model as it is, else with every function in ONNX's terms of simpler operators."""
        try:
            return self._form(False).variant(feeds)
        except UserError as refusal:
            try:
                return self._form(True).variant(feeds)
            except UserError:
                raise refusal from None

    def _form(self, every: bool) -> Form:
        if every not in self._forms:
            self._forms[every] = Form(self.model, every, self.hw_config.machine, self.rounding)
        return self._forms[every]


class EpuBackend(Backend):
    """``onnx.backend.base.Backend`` on the ISS."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether all inputs and outputs are tensors of numbers. What the nodes need is known at the first run."""
        try:
            _require_numbers(model)
        except UserError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> EpuRep:
        """``hw_config`` (an HWConfig) and ``rounding`` ("exact", "ort") are options. Raises Refused, ValidationError."""
        super().prepare(model, device)
        with _refusing():
            _require_numbers(model)
        options = {name: kwargs[name] for name in ("hw_config", "rounding") if name in kwargs}
        return EpuRep(model, **options)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node. Without ``outputs_info`` the outputs' types are inferred."""
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        super().run_node(node, inputs, device, outputs_info, opset_version=version)
        return cls.run_model(_model_of(node, inputs, outputs_info, version), inputs, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """The ISS runs on the CPU."""
        return device.split(":")[0] == "CPU"


def _require_numbers(model: onnx.ModelProto) -> None:
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            raise UserError(f"'{value.name}' must be a tensor, found {kind}. Cut the model behind it.")
        if value.type.tensor_type.elem_type == onnx.TensorProto.STRING:
            raise UserError(f"'{value.name}' must hold numbers, found strings. Cut the model behind it.")


def _real32(value: NDArray[Any]) -> NDArray[Any]:
    """float16, bfloat16 and float64 as float32, everything else as it is."""
    is_real = value.dtype.kind == "f" or value.dtype.name == "bfloat16"
    return value.astype(np.float32) if is_real else value


def _numpy_type(value: onnx.ValueInfoProto) -> np.dtype[Any]:
    return onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)


def _model_of(
    node: onnx.NodeProto,
    inputs: Any,
    outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None,
    version: int,
) -> onnx.ModelProto:
    """The model of one node."""
    named = inputs if isinstance(inputs, Mapping) else dict(zip(filter(None, node.input), inputs))
    given = [_value_info(name, np.asarray(value).dtype, np.asarray(value).shape) for name, value in named.items()]
    names = [name for name in node.output if name]
    made = [_value_info(name, *info) for name, info in zip(names, outputs_info or [])]
    made = made or [onnx.helper.make_empty_tensor_value_info(name) for name in names]
    graph = onnx.helper.make_graph([node], node.name or node.op_type, given, made)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)])
    return model if outputs_info else onnx.shape_inference.infer_shapes(model)


def _value_info(name: str, dtype: np.dtype[Any], shape: Sequence[int]) -> onnx.ValueInfoProto:
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return onnx.helper.make_tensor_value_info(name, kind, shape)


is_compatible: Callable[..., bool] = EpuBackend.is_compatible
prepare: Callable[..., EpuRep] = EpuBackend.prepare
run_model: Callable[..., tuple[Any, ...]] = EpuBackend.run_model
run_node: Callable[..., tuple[Any, ...]] = EpuBackend.run_node
supports_device: Callable[[str], bool] = EpuBackend.supports_device
