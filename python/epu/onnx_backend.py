"""ONNX's backend interface on the ISS: ``prepare(model).run(inputs)``, so that ``onnx.backend.test`` runs against the EPU.

A model is compiled at its first run, for the shapes of the inputs, the values of those inputs that the compiler must
know (shapes, axes, scales, weights) and the ranges that ONNX's reference evaluator sees on the inputs. Each result
comes from the ISS; what the EPU cannot run is a ``Refused``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.inliner
from numpy.typing import NDArray
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

from epu.errors import UnsupportedNode, UserError
from epu.front_end import Imported, import_model, require_all_on_epu, to_typed_graph
from epu.hw_config import HWConfig
from epu.onnx_fold import finite_masks, fold_known
from epu.onnx_load import load_model
from epu.onnx_observe import observe
from epu.onnx_promote import constant_inputs, promote, prune
from epu.onnx_reals import to_float32
from epu.onnx_shapes import fix_shapes, graph_inputs
from epu.ranges import Ranges
from epu.raw_tensors import Arrays, decode, encode
from epu.simulator.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epu.compiler import CompiledModule

Key = tuple[tuple[str, tuple[int, ...], bytes], ...]
NAME = "epu"
FOLDED_WHOLE = ("Range",)  # ONNX spells it out as a Loop


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


@dataclass(frozen=True)
class Variant:
    """The model for one set of shapes and promoted values; ``folded`` are outputs known at compile time."""

    model: onnx.ModelProto
    folded: Arrays
    imported: Imported | None = None  # None where all is folded
    ranges: Ranges = field(default_factory=dict)
    compiled: CompiledModule | None = None

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> Arrays:
        if self.compiled is None:
            return self.folded
        program = self.compiled.program
        raw = encode(program.inputs, {buffer.name: feeds[buffer.name] for buffer in program.inputs})
        return {**self.folded, **decode(program.outputs, simulate(program, raw).outputs)}


@dataclass
class EpuRep(BackendRep):
    """A model ready to run; ``last`` is what it was compiled to for the last inputs."""

    model: onnx.ModelProto
    hw_config: HWConfig = field(default_factory=HWConfig)
    rounding: str = "exact"
    last: Variant | None = None

    def __post_init__(self) -> None:
        self._variants: dict[Key, Variant] = {}

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
        constants = {name: feeds[name] for name in self._constants}
        key = tuple((n, f.shape, f.tobytes() if n in constants else b"") for n, f in feeds.items())
        if key not in self._variants:
            self._variants[key] = self._import(self._specialised(feeds, constants))
        return self._calibrated(self._variants[key], key, feeds)

    def _calibrated(self, variant: Variant, key: Key, feeds: Arrays) -> Variant:
        """Compiled for ranges that hold ``feeds``; anew where an earlier program's do not."""
        if variant.imported is None:
            return variant
        seen = observe(variant.model, feeds)
        if variant.compiled is None or not _covered(variant.ranges, seen):
            ranges = _union(variant.ranges, seen)
            variant = self._variants[key] = replace(
                variant, ranges=ranges, compiled=self._compile(variant.imported, ranges)
            )
        return variant

    @cached_property
    def _simple(self) -> onnx.ModelProto:
        """The model in operators that the importer knows, its reals float32."""
        model = to_float32(expand_functions(self.model))
        return prune(model, {value.name for value in model.graph.output})

    @cached_property
    def _constants(self) -> list[str]:
        return constant_inputs(self._simple)

    def _specialised(self, feeds: Arrays, constants: Arrays) -> onnx.ModelProto:
        model = promote(self._simple, constants)
        model = fix_shapes(model, {value.name: feeds[value.name].shape for value in graph_inputs(model)})
        model = finite_masks(fold_known(model))
        return load_model(prune(model, {value.name for value in model.graph.output}))

    def _import(self, model: onnx.ModelProto) -> Variant:
        imported = import_model(model)
        folded = folded_outputs(imported, model)
        computed = {value.name for value in model.graph.output} - folded.keys()
        if not computed:
            return Variant(model, folded)
        if folded:
            model = prune(model, computed)
            imported = import_model(model)
        require_all_on_epu(imported.module)
        return Variant(model, folded, imported)

    def _compile(self, imported: Imported, ranges: Ranges) -> CompiledModule:
        from epu.compiler import compile_graph

        graph = to_typed_graph(imported, ranges, NAME)
        return compile_graph(graph, self.hw_config.machine, rounding=self.rounding, name=NAME)


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


def expand_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Operators that the importer does not know, but that ONNX defines by others, in terms of those."""
    from epu.relay_passes.import_onnx import CONVERTERS

    unknown = [(node.domain, node.op_type) for node in model.graph.node if node.op_type not in CONVERTERS]
    if not unknown:
        return model
    kept = [("", op) for op in (*CONVERTERS, *FOLDED_WHOLE)]
    spelt = onnx.shape_inference.infer_shapes(with_default_attributes(model), data_prop=True)
    try:
        return onnx.inliner.inline_selected_functions(spelt, kept, exclude=True, inline_schema_functions=True)
    except RuntimeError:  # the inliner stops at an operand whose type inference does not find, or that is left out
        return model


def with_default_attributes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose nodes spell out their attributes' defaults, which ONNX's inliner does not know."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for node in result.graph.node:
        if onnx.defs.has(node.op_type, node.domain):
            schema = onnx.defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
            given = {attribute.name for attribute in node.attribute}
            defaults = [each.default_value for name, each in schema.attributes.items() if name not in given]
            node.attribute.extend(each for each in defaults if each.name)
    return result


def _covered(ranges: Ranges, seen: Ranges) -> bool:
    return all(ranges[name][0] <= low and high <= ranges[name][1] for name, (low, high) in seen.items())


def _union(left: Ranges, right: Ranges) -> Ranges:
    both = {name: (left.get(name, ends), ends) for name, ends in right.items()}
    return {name: (min(a[0], b[0]), max(a[1], b[1])) for name, (a, b) in both.items()}


def folded_outputs(imported: Imported, model: onnx.ModelProto) -> Arrays:
    """Outputs that depend on no input, constants, shapes and what is made of them, and those without elements."""
    from tvm import relay

    body = imported.module["main"].body
    fields = list(body.fields) if isinstance(body, relay.Tuple) else [body]
    named = zip((value.name for value in model.graph.output), fields, strict=True)
    found = {name: _folded(each) for name, each in named}
    return {name: value for name, value in found.items() if value is not None}


def _folded(expr: Any) -> NDArray[Any] | None:
    from tvm import relay

    if isinstance(expr, relay.Constant):
        return np.asarray(expr.data.numpy())
    shape = tuple(int(size) for size in expr.checked_type.shape)
    return np.zeros(shape, expr.checked_type.dtype) if 0 in shape else None


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
