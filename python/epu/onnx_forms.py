"""A model in the operators that the compiler has, compiled per shapes, promoted values and ranges of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from epu.front_end import Imported, import_model, require_all_on_epu, to_typed_graph
from epu.onnx_fold import finite_masks, fold_known, infinity_tests, without_infinity_tests
from epu.onnx_functions import expand_functions
from epu.onnx_load import load_model
from epu.onnx_observe import observe, require_finite
from epu.onnx_promote import constant_inputs, promote, prune
from epu.onnx_reals import to_float32
from epu.onnx_shapes import fix_shapes, graph_inputs
from epu.ranges import Ranges
from epu.raw_tensors import Arrays, decode, encode
from epu.simulator.machine import Machine
from epu.simulator.simulation import simulate

if TYPE_CHECKING:
    from epu.compiler import CompiledModule

Key = tuple[tuple[str, tuple[int, ...], bytes], ...]
NAME = "epu"


@dataclass(frozen=True)
class Variant:
    """The model for one set of shapes and promoted values; ``folded`` are outputs known at compile time."""

    model: onnx.ModelProto
    folded: Arrays
    source: onnx.ModelProto | None = None  # the model that tests data for infinity, where ``model`` takes it for finite
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
class Form:
    """A model with its functions spelt out: ``every`` one, or those that the importer does not know."""

    source: onnx.ModelProto
    every: bool
    machine: Machine
    rounding: str
    variants: dict[Key, Variant] = field(default_factory=dict)

    @cached_property
    def model(self) -> onnx.ModelProto:
        """In operators that the importer knows, all reals float32."""
        model = to_float32(expand_functions(self.source, self.every))
        return prune(model, {value.name for value in model.graph.output})

    @cached_property
    def constants(self) -> list[str]:
        """Inputs that must be known to compile."""
        return constant_inputs(self.model)

    def variant(self, feeds: Arrays) -> Variant:
        """Compiled for ``feeds``. Raises UserError where the EPU cannot run it."""
        constants = {name: feeds[name] for name in self.constants}
        key = tuple((n, f.shape, f.tobytes() if n in constants else b"") for n, f in feeds.items())
        if key not in self.variants:
            source = self.specialised(feeds, constants)
            variant = imported_variant(loaded(source))
            self.variants[key] = replace(variant, source=source if infinity_tests(source) else None)
        variant = self.variants[key] = self.calibrated(self.variants[key], feeds)
        return variant

    def specialised(self, feeds: Arrays, constants: Arrays) -> onnx.ModelProto:
        model = promote(self.model, constants)
        model = fix_shapes(model, {value.name: feeds[value.name].shape for value in graph_inputs(model)})
        return fold_known(model)

    def calibrated(self, variant: Variant, feeds: Arrays) -> Variant:
        """Compiled for ranges that hold ``feeds``; anew where an earlier program's do not."""
        from epu.compiler import compile_graph

        if variant.source is not None:
            require_finite(variant.source, feeds, set(infinity_tests(variant.source).values()))
        if variant.imported is None:
            return variant
        seen = observe(variant.model, feeds)
        if variant.compiled is not None and _covered(variant.ranges, seen):
            return variant
        ranges = _union(variant.ranges, seen)
        graph = to_typed_graph(variant.imported, ranges, NAME)
        compiled = compile_graph(graph, self.machine, rounding=self.rounding, name=NAME)
        return replace(variant, ranges=ranges, compiled=compiled)


def loaded(source: onnx.ModelProto) -> onnx.ModelProto:
    """Without infinities, as far as they are masks, and checked."""
    model = without_infinity_tests(source)
    return load_model(finite_masks(prune(model, {value.name for value in model.graph.output})))


def imported_variant(model: onnx.ModelProto) -> Variant:
    """Behind the Relay door, without the outputs that are known already."""
    imported = import_model(model)
    folded = folded_outputs(imported, model)
    computed = {value.name for value in model.graph.output} - folded.keys()
    if not computed:
        return Variant(model, folded)
    if folded:
        model = prune(model, computed)
        imported = import_model(model)
    require_all_on_epu(imported.module)
    return Variant(model, folded, imported=imported)


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
