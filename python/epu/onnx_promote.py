"""Which graph inputs a compiler must know: axes, shapes, scales, weights that ONNX's own test cases feed as inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from epu.onnx_shapes import graph_inputs

Makers = Mapping[str, onnx.NodeProto]

ALL = tuple(range(1, 16))  # every input but the first
CONSTANT_INPUTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "Slice", "Squeeze", "Unsqueeze", "Pad", "Resize", "Upsample"), ALL),
    **dict.fromkeys(("Split", "TopK", "CumSum", "CumProd", "OneHot", "Trilu", "Dropout", "Clip", "Pow"), ALL),
    **dict.fromkeys(
        ("BatchNormalization", "PRelu", "ConvTranspose", "Conv", "QuantizeLinear", "DequantizeLinear"), ALL
    ),
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "Compress", "ReverseSequence", "CenterCropPad"), ALL),
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), (1,)),
    **{f"Reduce{kind}": ALL for kind in "Mean Sum Max Min Prod L1 L2 LogSum LogSumExp SumSquare".split()},
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "GroupNormalization", "InstanceNormalization"), ALL),
    **dict.fromkeys(("ConvInteger", "QLinearConv"), ALL),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "MatMulInteger": (2, 3),
    "Where": (0,),
    "ConstantOfShape": (0,),
    "EyeLike": (),
    "Range": (0, 1, 2),
}  # op -> the inputs whose values, not only shapes, it is compiled for
SHAPE_ONLY = frozenset({"Shape", "Size", "EyeLike"})  # read no values


def constant_inputs(model: onnx.ModelProto) -> list[str]:
    """Graph inputs that reach the outputs through constant operands alone, in the order of the graph.

    An input that is also data anywhere stays an input: to fold it would be to compute its data at compile time.
    """
    makers = {output: node for node in model.graph.node for output in node.output}
    constants = [name for node in model.graph.node for name in node.input if name in _constant_operands(node)]
    data = _reached([value.name for value in model.graph.output], makers, _data_operands)
    wanted = _reached(constants, makers, _value_operands) - data
    return [value.name for value in graph_inputs(model) if value.name in wanted]


def _reached(names: list[str], makers: Makers, operands: Callable[[onnx.NodeProto], list[str]]) -> set[str]:
    """Tensors that ``names`` depend on through ``operands`` of the nodes that make them."""
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        if name not in seen and name in makers:
            waiting += operands(makers[name])
        seen.add(name)
    return seen


def _value_operands(node: onnx.NodeProto) -> list[str]:
    return [] if node.op_type in SHAPE_ONLY else sorted(reads(node))


def _data_operands(node: onnx.NodeProto) -> list[str]:
    constants = _constant_operands(node)
    return [name for name in _value_operands(node) if name not in constants]


def _constant_operands(node: onnx.NodeProto) -> set[str]:
    wanted = CONSTANT_INPUTS.get(node.op_type, ())
    data = {name for index, name in enumerate(node.input) if index not in wanted}
    return {name for index, name in enumerate(node.input) if name and index in wanted} - data


def promote(model: onnx.ModelProto, values: Mapping[str, NDArray]) -> onnx.ModelProto:  # type: ignore[type-arg]
    """A copy whose graph inputs named in ``values`` are initializers."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    _keep_inputs(result, {value.name for value in model.graph.input} - values.keys())
    result.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    return result


def prune(model: onnx.ModelProto, outputs: Set[str]) -> onnx.ModelProto:
    """A copy that makes ``outputs`` alone, without the nodes and inputs that they do not need."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    needed, kept = set(outputs), []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(reads(node))
    del result.graph.node[:], result.graph.output[:]
    result.graph.node.extend(reversed(kept))
    result.graph.output.extend(value for value in model.graph.output if value.name in outputs)
    _keep_inputs(result, needed)
    return result


def _keep_inputs(model: onnx.ModelProto, names: Set[str]) -> None:
    kept = [value for value in model.graph.input if value.name in names]
    del model.graph.input[:]
    model.graph.input.extend(kept)


def reads(node: onnx.NodeProto) -> set[str]:
    """Tensors a node reads, those of its subgraphs included."""
    inner = [each for attribute in node.attribute for each in attribute.g.node]
    return set(node.input).union(*map(reads, inner)) if inner else set(node.input)
