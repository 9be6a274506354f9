"""Moves: each output axis as runs of positions of an input's axis (``epu.tir_schedules.moves``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from epu.errors import UnsupportedNode
from epu.graph import Graph, Node, Tensor
from epu.lowering.lowered import Lowered, bind_arrays, dtype_of, operand, result
from epu.lowering.split import Splits, by_extents, transpose_kernel
from epu.operators.layout import slices
from epu.operators.resize import positions
from epu.operators.selection import depth_to_space, indices, pad_edges, pad_fill, space_to_depth

if TYPE_CHECKING:
    from epu.tir_schedules.kernel import Kernel
    from epu.tir_schedules.moves import MoveShape, Run

Runs = tuple["Run", ...]
MOST_PHASES = 8


def runs_of(found: Sequence[int]) -> Runs:
    """The fewest arithmetic progressions that make up a list of input positions, interleaved or one after the other."""
    choices = [_interleaved(found, phases) for phases in range(1, min(MOST_PHASES, len(found)) + 1)]
    return min(choices, key=len)


def _interleaved(found: Sequence[int], phases: int) -> Runs:
    return tuple(run for phase in range(phases) for run in _progressions(found[phase::phases], phase, phases))


def _progressions(found: Sequence[int], to: int, step: int) -> list[Run]:
    from epu.tir_schedules.moves import Run

    runs, first = [], 0
    while first < len(found):
        stride = found[first + 1] - found[first] if first + 1 < len(found) else 1
        last = first + 1
        while last < len(found) and found[last] - found[last - 1] == stride:
            last += 1
        runs.append(Run(to + first * step, last - first, found[first], stride, step))
        first = last
    return runs


def identity(extent: int) -> Runs:
    from epu.tir_schedules.moves import Run

    return (Run(0, extent),)


def lower_move(
    node: Node,
    graph: Graph,
    axes: Sequence[Runs],
    inputs: Sequence[Tensor],
    *,
    out: Sequence[int] | None = None,
    seen: Sequence[int] | None = None,
    fill: int = 0,
) -> Lowered:
    """``out`` and ``seen``: shapes of the output and of the inputs where they are not the tensors' own."""
    from epu.tir_schedules.moves import MoveShape

    target = result(node, graph)
    shapes = tuple(tuple(tensor.shape if seen is None else seen) or (1,) for tensor in inputs)  # a scalar has no axis
    extents = tuple(target.shape if out is None else out) or (1,)
    whole = MoveShape(extents, shapes, tuple(axes) or (identity(1),), dtype_of(target), fill)
    kernel, splits = moves_kernel(whole.collapsed())
    names = {f"X{k}": tensor.name for k, tensor in enumerate(inputs)}
    variable, constants = bind_arrays(graph, names)
    return Lowered(node, kernel, variable, {"Y": node.outputs[0]}, constants, splits=splits)


def moves_kernel(whole: MoveShape) -> tuple[Kernel, Splits]:
    """A kernel of moves and its splits along the axes that pass through unchanged or are repeated."""
    from epu.tir_schedules.moves import moves

    free = [axis for axis in range(len(whole.out)) if whole.is_common(axis) or whole.is_repeated(axis)]

    def build(extents: tuple[int, ...]) -> Kernel:
        smaller = whole
        for axis, extent in zip(free, extents):
            smaller = smaller.resized(axis, extent)
        return moves(smaller)

    return moves(whole), by_extents([f"d{axis}" for axis in free], [whole.out[axis] for axis in free], build)


def lower_slice(node: Node, graph: Graph, rounding: str) -> Lowered:
    x = operand(node, graph, 0)
    axes = [runs_of(range(size)[each]) for size, each in zip(x.shape, slices(node, graph))]
    return lower_move(node, graph, axes, [x])


def lower_gather(node: Node, graph: Graph, rounding: str) -> Lowered:
    """With the indices flat: the output has the input's rank."""
    x, axis = operand(node, graph, 0), int(node.attrs["axis"])
    picked = [each % x.shape[axis] for each in indices(node)]
    axes = [runs_of(picked) if k == axis else identity(size) for k, size in enumerate(x.shape)]
    out = [len(picked) if k == axis else size for k, size in enumerate(x.shape)]
    return lower_move(node, graph, axes, [x], out=out)


def lower_expand(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.moves import Run

    x, out = operand(node, graph, 0), result(node, graph).shape
    seen = (1,) * (len(out) - len(x.shape)) + x.shape
    axes = [identity(n) if n == size else (Run(0, n, 0, 0),) for n, size in zip(out, seen)]
    return lower_move(node, graph, axes, [x], seen=seen)


def lower_tile(node: Node, graph: Graph, rounding: str) -> Lowered:
    """Each axis as repeats times positions."""
    from epu.tir_schedules.moves import Run

    x = operand(node, graph, 0)
    out, seen, axes = [], [], []
    for size, repeats in zip(x.shape, node.attrs["repeats"]):
        out += [int(repeats), size]
        seen += [1, size]
        axes += [identity(1) if repeats == 1 else (Run(0, int(repeats), 0, 0),), identity(size)]
    return lower_move(node, graph, axes, [x], out=out, seen=seen)


def lower_concat(node: Node, graph: Graph, rounding: str) -> Lowered:
    """Inputs of the output's type (``requantise_concats`` sees to it)."""
    from epu.tir_schedules.moves import Run

    inputs, target = [operand(node, graph, k) for k in range(len(node.inputs))], result(node, graph)
    axis = int(node.attrs["axis"]) % len(target.shape)
    different = [tensor for tensor in inputs if tensor.type != target.type]
    if different:
        raise UnsupportedNode(
            f"ONNX node '{node.name}' ({node.op}): inputs must have the output's type, found {different[0].type} beside "
            f"{target.type}. Quantise both alike, or cut the model before the node (epu cut)."
        )
    runs, to = [], 0
    for source, tensor in enumerate(inputs):
        runs.append(Run(to, tensor.shape[axis], source=source))
        to += tensor.shape[axis]
    axes = [tuple(runs) if k == axis else identity(size) for k, size in enumerate(target.shape)]
    return lower_move(node, graph, axes, inputs)


def lower_pad(node: Node, graph: Graph, rounding: str) -> Lowered:
    x = operand(node, graph, 0)
    mode = node.attrs.get("mode", "constant")
    axes = [padded(mode, size, *edges) for size, edges in zip(x.shape, pad_edges(node, graph))]
    return lower_move(node, graph, axes, [x], fill=int(pad_fill(node, graph)))


def padded(mode: str, size: int, before: int, after: int) -> Runs:
    """The runs of one padded axis; negative padding cuts off."""
    from epu.tir_schedules.moves import FILL, Run

    first, last = max(-before, 0), size - max(-after, 0) - 1
    kept = last - first + 1
    before, after = max(before, 0), max(after, 0)
    outside: dict[str, tuple[Run, Run]] = {
        "constant": (Run(0, before, source=FILL), Run(before + kept, after, source=FILL)),
        "edge": (Run(0, before, first, 0), Run(before + kept, after, last, 0)),
        "reflect": (Run(0, before, first + before, -1), Run(before + kept, after, last - 1, -1)),
    }
    runs = (outside[mode][0], Run(before, kept, first), outside[mode][1])
    return tuple(run for run in runs if run.count > 0)


def lower_zero_stuff(node: Node, graph: Graph, rounding: str) -> Lowered:
    """``stride - 1`` filled positions between neighbours."""
    from epu.tir_schedules.moves import FILL, Run

    x = operand(node, graph, 0)
    axes: list[Runs] = [identity(size) for size in x.shape[:2]]
    for size, stride in zip(x.shape[2:], node.attrs["strides"]):
        between = [Run(phase, size - 1, source=FILL, step=stride) for phase in range(1, stride) if size > 1]
        axes.append((Run(0, size, step=stride), *between))
    return lower_move(node, graph, axes, [x], fill=int(node.attrs["value"]))


def lower_resize(node: Node, graph: Graph, rounding: str) -> Lowered:
    """By positions; ``expand_linear_resize`` has split a linear one."""
    x = operand(node, graph, 0)
    found = positions(node, graph)
    axes = [runs_of(found[k]) if k in found else identity(size) for k, size in enumerate(x.shape)]
    return lower_move(node, graph, axes, [x])


Rearranged = Callable[[Node, Graph], tuple[tuple[int, ...], tuple[int, ...]]]


def rearranged(seen: Rearranged) -> Callable[[Node, Graph, str], Lowered]:
    """The lowering of a transpose of the input seen in more dimensions."""

    def lower(node: Node, graph: Graph, rounding: str) -> Lowered:
        x = operand(node, graph, 0)
        kernel, splits = transpose_kernel(*seen(node, graph), dtype_of(x))
        return Lowered(node, kernel, {"X": x.name}, {"Y": node.outputs[0]}, splits=splits)

    return lower


lower_depth_to_space, lower_space_to_depth = rearranged(depth_to_space), rearranged(space_to_depth)
