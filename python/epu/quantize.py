"""Post-training quantisation to symmetric int8, and the ranges of what stays float."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx

from epu.errors import UserError
from epu.log import get_logger
from epu.onnx_load import ModelSource, load_model, save_model
from epu.onnx_shapes import Shapes, graph_inputs, opset_of, shape_of, value_types
from epu.quantization.accuracy import Accuracy, Target, reach
from epu.quantization.bias_room import warn_of_large_biases
from epu.quantization.custom_nodes import CustomNodes
from epu.quantization.exclusions import nodes_to_exclude
from epu.quantization.masks import mask_nodes
from epu.quantization.observe import observe_ranges
from epu.quantization.optimize import name_nodes, optimize
from epu.quantization.quantizer import check_format, quantize
from epu.quantization.samples import CalibrationData, CheckedSamples, synthetic_samples
from epu.quantization.session import with_runtime_types
from epu.ranges import save_ranges

log = get_logger("quantize")

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class QuantizeResult:
    """The files ``quadric_quantize`` wrote: int8 model, its .tranges, and the optimised float model it came from.

    ``accuracy`` says how an accuracy target was reached, where one was given.
    """

    qmodel_path: str
    tranges_path: str
    float_path: str
    accuracy: Accuracy | None = None


def quadric_quantize(
    model: ModelSource,
    num_images: int = 1,
    synthetic_input: bool = False,
    output_folder: str | os.PathLike[str] = ".",
    calibration_data: CalibrationData | None = None,
    *,
    shapes: Shapes | None = None,
    format: str = "qoperator",
    per_channel: bool = False,
    exclude: Sequence[str] = (),
    seed: int = 0,
    accuracy: Target | None = None,
    evaluation_data: CalibrationData | None = None,
) -> QuantizeResult:
    """Quantise a float ONNX model to symmetric int8 and write it with the ranges of its float tensors.

    ``calibration_data``: dictionaries of input name to array (list, generator or onnxruntime CalibrationDataReader),
    or the path of an .npz file with one array [samples, *input shape] per input; all samples are used, one at a time.
    Without it ``synthetic_input=True`` draws ``num_images`` random samples from ``seed``. ``shapes`` fixes dynamic
    inputs. ``format`` is "qoperator" or "qdq". Softmax, Sigmoid, QuadricCustomOp and layer normalisation stay float,
    and so do the node names and op types in ``exclude``. ``accuracy`` is a target against the float model: the fewest nodes that
    reach it on ``evaluation_data`` (the calibration samples where None) stay float too, and run in fixed point.

    Writes, each whole or not at all, ``<stem>_float32_opt.onnx``, ``<stem>_opt_sym_int8_q.onnx`` and that name plus
    ``.tranges``. Raises UserError for a model, a calibration sample or an argument that does not fit.
    """
    check_format(format)
    custom = CustomNodes(name_nodes(load_model(model, shapes=shapes)))
    loaded = custom.opened()
    check_quantizable(loaded)
    with _samples(loaded, calibration_data, synthetic_input, num_images, seed) as samples:
        optimized = _optimize(loaded, per_channel)
        excluded = nodes_to_exclude(optimized, [*exclude, *custom.kept_float(optimized)], original=custom.model)
        reached = None
        if accuracy is not None:
            reached = _reach(accuracy, optimized, samples, evaluation_data, excluded, format, per_channel)
            excluded = excluded + reached.left_float
        quantized = _quantize(optimized, samples, excluded, format, per_channel)
        log.info("Model still has FLOAT types. Creating ranges for floating point tensors using calibration data")
        ranges = observe_ranges(quantized, samples)
    stem = Path(output_folder) / _stem(model, loaded)
    result = QuantizeResult(
        qmodel_path=f"{stem}_opt_sym_int8_q.onnx",
        tranges_path=f"{stem}_opt_sym_int8_q.onnx.tranges",
        float_path=f"{stem}_float32_opt.onnx",
        accuracy=reached,
    )
    optimized, quantized = custom.closed(optimized), custom.closed(quantized)
    _save(optimized, result.float_path, "full precision", "optimized")
    _save(quantized, result.qmodel_path, "quantized", "quantized")
    save_ranges(ranges, result.tranges_path)
    log.info("Saved tensor ranges to %s", result.tranges_path)
    return result


def _optimize(model: onnx.ModelProto, per_channel: bool) -> onnx.ModelProto:
    optimized = optimize(model, per_channel=per_channel)
    log.info("Optimized model, opset %d", opset_of(optimized))
    for value in graph_inputs(optimized):
        log.info("Input shapes: %s. Input names: %s", list(shape_of(value) or ()), value.name)
    outputs = optimized.graph.output
    shapes = [list(shape_of(value) or ()) for value in outputs]
    log.info("Output shapes: %s. Output names: %s", shapes, [value.name for value in outputs])
    return optimized


def _reach(
    target: Target,
    model: onnx.ModelProto,
    samples: CheckedSamples,
    evaluation_data: CalibrationData | None,
    excluded: list[str],
    format: str,
    per_channel: bool,
) -> Accuracy:
    observed = observe_ranges(model, samples)
    always = excluded + mask_nodes(model, observed, excluded)

    def quantise(left_float: Sequence[str]) -> onnx.ModelProto:
        return quantize(model, observed, [*always, *left_float], format=format, per_channel=per_channel)

    if evaluation_data is None:
        return reach(target, model, samples, quantise)
    with closing(CheckedSamples(model, evaluation_data)) as evaluation:
        return reach(target, model, evaluation, quantise)


def _quantize(
    model: onnx.ModelProto, samples: CheckedSamples, excluded: list[str], format: str, per_channel: bool
) -> onnx.ModelProto:
    log.info("Quantization started...")
    observed = observe_ranges(model, samples)
    excluded = excluded + mask_nodes(model, observed, excluded)
    log.debug("excl_nodes %s", excluded)
    quantized = with_runtime_types(quantize(model, observed, excluded, format=format, per_channel=per_channel))
    warn_of_large_biases(model, quantized)
    log.info("Quantization done successfully!")
    return quantized


def compute_tensor_ranges(
    model: ModelSource,
    tranges_path: str | os.PathLike[str],
    calibration_data: CalibrationData | None = None,
    *,
    synthetic: int | None = None,
    shapes: Shapes | None = None,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Write the .tranges of a model as it is, and return the ranges: of one that is quantised already, or of a float model,
    all of which then runs in fixed point.

    ``calibration_data`` and ``shapes`` are what ``quadric_quantize`` takes; ``synthetic`` is a number of random samples to
    take instead of data. Raises UserError as it does.
    """
    loaded = load_model(model, shapes=shapes)
    with _samples(loaded, calibration_data, synthetic is not None, synthetic or 0, seed) as samples:
        ranges = observe_ranges(loaded, samples)
    save_ranges(ranges, tranges_path)
    log.info("Saved tensor ranges to %s", tranges_path)
    return ranges


def check_quantizable(model: onnx.ModelProto) -> None:
    """Raise UserError for a model that is quantised already or computes in another float type than float32."""
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") or node.op_type.startswith(("QLinear", "QGemm")):
            raise UserError(
                f"ONNX node '{node.name}' ({node.op_type}): the model is quantised already. Give the float model, "
                "or use compute_tensor_ranges for the .tranges of this one."
            )
    other = {getattr(onnx.TensorProto, name): name.lower() for name in ("FLOAT16", "BFLOAT16", "DOUBLE")}
    types = {name: value.type.tensor_type.elem_type for name, value in value_types(model).items()}
    types |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    for name, type in types.items():
        if type in other:
            raise UserError(
                f"tensor '{name}' is {other[type]}; only float32 is quantised. Export the model in float32."
            )


@contextmanager
def _samples(
    model: onnx.ModelProto, data: CalibrationData | None, synthetic: bool, count: int, seed: int
) -> Iterator[CheckedSamples]:
    if (data is None) != synthetic:
        raise UserError(
            "give either calibration_data or synthetic_input=True, " + ("not both." if synthetic else "found neither.")
        )
    if data is None:
        log.info("Generating synthetic data")
        data = synthetic_samples(model, count, seed)
    with closing(CheckedSamples(model, data)) as samples:
        yield samples


def _stem(source: ModelSource, model: onnx.ModelProto) -> str:
    if isinstance(source, onnx.ModelProto):
        return "".join(c if c.isalnum() or c in "-._" else "_" for c in model.graph.name) or "model"
    return Path(source).stem


def _save(model: onnx.ModelProto, path: str, precision: str, kind: str) -> None:
    save_model(model, path)
    log.info("ONNX %s model size: %.2f MB", precision, os.path.getsize(path) / MEGABYTE)
    log.info("Saved %s model to %s", kind, path)
