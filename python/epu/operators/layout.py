"""Moves: Reshape and its kin, Transpose, Slice, Concat. Only Concat changes a format, and Rescale nothing else."""

from __future__ import annotations

import numpy as np

from epu.graph import Fixed, Graph, Integer, Node
from epu.lanes import rshr, saturate
from epu.operators.row import (
    FLOAT_TENSORS,
    Array,
    Interval,
    Limit,
    Operator,
    Reference,
    Values,
    frac,
    input_tensor,
    interval,
    is_constant,
    output_tensor,
    required,
    same_format,
    same_intervals,
    value,
)


def reshape_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    return [np.reshape(values[node.inputs[0]], output_tensor(node, graph).shape)]


def transpose_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    return [np.transpose(values[node.inputs[0]], node.attrs.get("perm"))]


def slice_numbers(node: Node, graph: Graph, name: str, index: int) -> list[int] | None:
    """``starts``, ``ends``, ``axes`` or ``steps``: an attribute or a constant input."""
    if name in node.attrs:
        return [int(each) for each in node.attrs[name]]
    tensor = input_tensor(node, graph, index)
    return None if tensor is None or tensor.data is None else [int(each) for each in tensor.data.ravel()]


def slices(node: Node, graph: Graph) -> tuple[slice, ...]:
    """The Python slices of a Slice; ONNX's ends beyond the tensor mean the same in Python."""
    shape = required(node, graph, 0).shape
    starts, ends = (slice_numbers(node, graph, *each) or [] for each in (("starts", 1), ("ends", 2)))
    axes = slice_numbers(node, graph, "axes", 3) or list(range(len(starts)))
    steps = slice_numbers(node, graph, "steps", 4) or [1] * len(starts)
    found = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps):
        beyond = step < 0 and end < -shape[axis]
        found[axis] = slice(start, None if beyond else end, step)
    return tuple(found)


def slice_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    return [values[node.inputs[0]][slices(node, graph)]]


def concat_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    target = output_tensor(node, graph).type
    pieces = []
    for i, name in enumerate(node.inputs):
        source, piece = required(node, graph, i).type, values[name]
        if isinstance(source, Fixed) and isinstance(target, Fixed) and source != target:
            piece = saturate(rshr(piece.astype(np.int64), source.frac - target.frac), "int32")
        pieces.append(piece)
    return [np.concatenate(pieces, node.attrs["axis"])]


def rescale_reference(node: Node, graph: Graph, values: Values, rounding: str) -> list[Array]:
    distance = frac(required(node, graph, 0)) - frac(output_tensor(node, graph))
    return [saturate(rshr(value(node, values, 0), distance), "int32")]


def concat_intervals(node: Node, graph: Graph) -> dict[str, Interval]:
    if isinstance(output_tensor(node, graph).type, Integer):
        return {}
    found = [interval(required(node, graph, i)) for i in range(len(node.inputs))]
    return {node.outputs[0]: (min(low for low, _ in found), max(high for _, high in found))}


def check_constant_slice(node: Node, graph: Graph) -> str | None:
    tensors = [input_tensor(node, graph, index) for index in range(1, 5)]
    variable = [each.name for each in tensors if each is not None and not is_constant(each)]
    return f"'{variable[0]}'" if variable else None


def check_same_type(node: Node, graph: Graph) -> str | None:
    kinds = [required(node, graph, i).type for i in range(len(node.inputs))]
    kinds.append(output_tensor(node, graph).type)
    first = kinds[0]
    for kind in kinds:
        if type(kind) is not type(first) or (hasattr(kind, "dtype") and kind != first):
            return f"{kind} beside {first}"
    return None


def move(
    name: str, reference: Reference = reshape_reference, limits: tuple[Limit, ...] = (), family: str = "layout"
) -> Operator:
    return Operator(name, family, limits, reference, same_intervals, formats=same_format)


ROWS = (
    *(move(name) for name in ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")),
    move("Transpose", transpose_reference, family="transpose"),
    move(
        "Slice", slice_reference, (Limit("starts, ends, axes and steps are constants", check_constant_slice),), "moves"
    ),
    Operator("Rescale", "elementwise", (FLOAT_TENSORS,), rescale_reference, same_intervals),
    Operator(
        name="Concat",
        family="moves",
        limits=(Limit("inputs and output have one type", check_same_type),),
        reference=concat_reference,
        intervals=concat_intervals,
    ),
)
