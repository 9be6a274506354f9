"""What the tables of a job say: inputs and outputs with their types, memory, the report of ``epu compile``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from epu.reports import Peak
from epu.simulator.fixed_point import NUMPY_DTYPE
from epu.simulator.program import Buffer
from epu.simulator.simulation import RunResult
from epu.stages import Chain

if TYPE_CHECKING:
    from epu.ort_session import InputSpec
    from epu.validation_result import ValidationResult

IoRow = tuple[str, str, tuple[int, ...], str, float | None]  # kind, name, shape, type, mean squared error


def io_rows(chain: Chain, validation: ValidationResult | None) -> Iterator[IoRow]:
    """One row per input and output of the model; the error against ORT once there is a validation."""
    for name, place in chain.inputs.items():
        yield "Input", name, place.shape, place_text(place), None
    for name, buffer in chain.outputs.items():
        place = buffer or _made_on_host(chain, name)
        error = validation.mse(name) if validation is not None else None
        yield "Output", name, place.shape, place_text(place), error


def _made_on_host(chain: Chain, name: str) -> InputSpec:
    from epu.ort_reference import declared_outputs

    return declared_outputs(chain.model)[name]


def place_text(place: Buffer | InputSpec) -> str:
    """The type as the in/out table writes it."""
    if not isinstance(place, Buffer):
        return f"tensor[{place.dtype}]"
    if place.decode.kind == "fx":
        return f"tensor[FixedPoint32<{place.decode.frac}>]"
    return f"tensor[{NUMPY_DTYPE[place.dtype]}]"


def peak_of(chain: Chain) -> Peak:
    """The most memory that any program needs."""
    peaks = [stage.compiled.peak for stage in chain.epu]
    return Peak(*(max(getattr(each, name) for each in peaks) for name in ("ocm_bytes", "lrm_bytes", "ext_temp_bytes")))


def kernel_rows(chain: Chain, run: RunResult) -> list[dict[str, Any]]:
    """Name, stage, ONNX nodes and cycles of every kernel."""
    spans = [(stage.index, span) for stage in chain.epu for span in stage.program.debug.kernels]
    return [
        {"name": span.name, "stage": stage, "nodes": list(span.nodes), "cycles": asdict(cycles)}
        for (stage, span), cycles in zip(spans, run.kernels, strict=True)
    ]
