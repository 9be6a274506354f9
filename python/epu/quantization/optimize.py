"""Preparation of a float model: names for all nodes, constants and BatchNormalization folded, its own opset kept."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import onnx
import onnxruntime
from onnx import helper

from epu.errors import UserError
from epu.log import get_logger
from epu.onnx_shapes import infer_shapes, opset_of
from epu.quantization.fold_channels import fold_channels
from epu.quantization.gemm_bias import bias_per_column
from epu.quantization.session import create_session

log = get_logger("quantize")

LOWEST_OPSET = 11  # below it ONNX Runtime's quantiser refuses the model
PER_CHANNEL_OPSET = 13  # QuantizeLinear has an axis from here on
FREE_IR_VERSION = 4  # from here on an initializer need not be an input too, which few old files obey
KEPT_IR_VERSION = 10  # every ONNX Runtime we support reads it; later ones bring no meaning but new types

# Basic optimisations of ONNX Runtime that would rename nodes or tensors, or put others in their place.
RENAMING_OPTIMIZERS = (
    "MatMulAddFusion",
    "ConstantSharing",
    "TransposeOptimizer",
    "GeluFusionL1",
    "LayerNormFusionL1",
)


def optimize(model: onnx.ModelProto, *, per_channel: bool = False) -> onnx.ModelProto:
    """Return the model with unique node names, constants and BatchNormalization folded, and shapes inferred.

    The nodes that remain keep their names. The opset stays as it is, except that one below 11 (13 with
    ``per_channel``) is raised, which is logged. Raises UserError where ONNX Runtime refuses the model.
    """
    named = name_nodes(model)
    raised = _raise_opset(named, PER_CHANNEL_OPSET if per_channel else LOWEST_OPSET)
    optimized = _name_inlined(_run_optimizer(_readable_ir(raised)), raised)
    folded = _without_idle_tensors(fold_channels(bias_per_column(infer_shapes(name_nodes(optimized)))))
    return infer_shapes(_without_idle_domains(folded))


def name_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which each node has a name of its own; names that are unique already stay."""
    named = onnx.ModelProto()
    named.CopyFrom(model)
    taken = {node.name for node in named.graph.node}
    seen = {""}
    for node in named.graph.node:
        if node.name in seen:
            node.name = _free_name(node.name or node.op_type, taken)
            taken.add(node.name)
        seen.add(node.name)
    return named


def _free_name(stem: str, taken: set[str]) -> str:
    name = next(name for name in (f"{stem}_{index}" for index in itertools.count()) if name not in taken)
    if stem in taken:
        log.warning("Node name '%s' is used twice: the later one becomes '%s'", stem, name)
    return name


def _raise_opset(model: onnx.ModelProto, lowest: int) -> onnx.ModelProto:
    opset = opset_of(model)
    if opset >= lowest:
        return model
    log.warning("Raised the opset from %d to %d, the lowest for this kind of quantisation", opset, lowest)
    model.ir_version = max(model.ir_version, FREE_IR_VERSION)
    try:
        return onnx.version_converter.convert_version(model, lowest)
    except (RuntimeError, onnx.version_converter.ConvertError) as error:
        raise UserError(
            f"the model has opset {opset} and cannot be raised to {lowest}: {error}. Export it with opset {lowest}."
        ) from error


def _readable_ir(model: onnx.ModelProto) -> onnx.ModelProto:
    needed = max(KEPT_IR_VERSION, helper.find_min_ir_version_for(list(model.opset_import), True))
    if model.ir_version > needed:
        log.info("Lowered the file's IR version from %d to %d for ONNX Runtime", model.ir_version, needed)
        model.ir_version = needed
    return model


def _run_optimizer(model: onnx.ModelProto) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory(prefix="epu.optimize.") as folder:
        path = Path(folder) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(path)
        options.log_severity_level = 3
        create_session(model, options, disabled_optimizers=list(RENAMING_OPTIMIZERS))
        return onnx.load(str(path))


def _name_inlined(model: onnx.ModelProto, original: onnx.ModelProto) -> onnx.ModelProto:
    """Name the nodes in whose place ONNX Runtime found a function (HardSwish, say) after the node that called it.

    The one with the output of the caller gets its name, the others, and their outputs, a name below that.
    """
    caller = {name: node.name for node in original.graph.node for name in node.output}
    renamed: dict[str, str] = {}
    for node in reversed(model.graph.node):
        if not node.name and node.output[0] in caller:
            node.name = caller[node.output[0]]
        elif not node.name:
            reader = next(other for other in model.graph.node if node.output[0] in other.input)
            node.name = f"{reader.name}/{node.op_type}"
            renamed |= {name: f"{node.name}_output_{index}" for index, name in enumerate(node.output)}
    for node in model.graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    return model


def _without_idle_tensors(model: onnx.ModelProto) -> onnx.ModelProto:
    """Drop the weights and type entries of what is gone."""
    graph = model.graph
    used = {name for node in graph.node for name in (*node.input, *node.output)}
    used |= {value.name for value in graph.output}
    for entries in (graph.initializer, graph.value_info):
        for entry in [entry for entry in entries if entry.name not in used]:
            entries.remove(entry)
    return model


def _without_idle_domains(model: onnx.ModelProto) -> onnx.ModelProto:
    """ONNX Runtime imports every domain it knows; keep those that nodes use."""
    used = {"" if node.domain == "ai.onnx" else node.domain for node in model.graph.node} | {""}
    imports = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(imports)
    return model
