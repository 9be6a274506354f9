"""Element functions of fixed-point tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from epu.constants import fixed_constant
from epu.graph import Graph, Node, Tensor
from epu.lowering.lowered import Lowered, bind_arrays, dtype_of, operand, result
from epu.lowering.split import staged_kernel
from epu.operators.row import frac
from epu.operators.smooth_functions import function_of
from epu.smooth import DEGREE, PLACE_BITS, SEGMENTS

if TYPE_CHECKING:
    from epu.tir_schedules.elementwise import Points

Array = NDArray[Any]


def build_staged(
    node: Node,
    graph: Graph,
    name: str,
    operands: dict[str, Tensor],
    program: Callable[[Points], Any],
    scalars: dict[str, int],
    tables: dict[str, Array] | None = None,
) -> Lowered:
    """A kernel of several stages; constants among the operands become constant parameters."""
    tables, out = tables or {}, result(node, graph)
    described = {
        param: ("input" if tensor.data is None else "constant", tensor.shape, dtype_of(tensor))
        for param, tensor in operands.items()
    }
    sizes = {table: (array.size, str(array.dtype)) for table, array in tables.items()}
    kernel, splits = staged_kernel(name, out.shape, described, program, tuple(scalars), sizes)
    inputs, constants = bind_arrays(graph, {param: tensor.name for param, tensor in operands.items()})
    constants.update(tables)
    return Lowered(node, kernel, inputs, {"Y": node.outputs[0]}, constants, scalars, splits=splits)


def lower_smooth(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.smooth import smooth

    x, y = operand(node, graph, 0), result(node, graph)
    f, p = function_of(node, graph)
    scalars = {"low": p.low, "high": p.high, "factor": p.factor, "shift": p.shift, "out_shift": p.frac - frac(y)}
    scalars["offset"] = fixed_constant(f.offset, frac(y))
    scalars.update({"ramp_shift": frac(x) - frac(y)} if f.ramp else {})
    tables = {f"C{k}": table for k, table in enumerate(p.tables)}
    assert all(table.size == SEGMENTS for table in tables.values())
    program = lambda points: smooth(points, PLACE_BITS, DEGREE, f.symmetry, f.ramp)  # noqa: E731
    return build_staged(node, graph, f"smooth_{f.symmetry}_{f.ramp}", {"X": x}, program, scalars, tables)
