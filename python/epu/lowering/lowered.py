"""What lowering delivers: a kernel, and what each of its parameters stands for in this node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from epu.graph import Graph, Integer, Node, Quantized, Tensor
from epu.lowering.split import Splits
from epu.operators.row import output_tensor, quantized, required
from epu.simulator.program import Columns

if TYPE_CHECKING:
    from epu.tir_schedules.kernel import Kernel


@dataclass
class Lowered:
    """A node's kernel with its operands by parameter name.

    ``inputs`` and ``outputs`` name graph tensors, ``constants`` and ``scalars`` hold values. ``observed``: stage → tensor.
    ``sums``: the observed tensors that the graph does not know. ``derived``: tensor → (source tensor, its value for each raw
    code of the source from the lowest). ``splits``: how the kernel is cut where the OCM is too small for it, None where it
    cannot be. ``pieces``: parts of tensors, derived alike: tensor, place, source tensor, values.
    ``moved``: tensor → (observed tensor, the shape to see it in, the order of its axes).
    """

    node: Node
    kernel: Kernel
    inputs: dict[str, str]
    outputs: dict[str, str]
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    scalars: dict[str, int] = field(default_factory=dict)
    observed: dict[str, str] = field(default_factory=dict)
    sums: dict[str, Tensor] = field(default_factory=dict)
    derived: dict[str, tuple[str, NDArray[Any]]] = field(default_factory=dict)
    moved: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    pieces: list[tuple[str, Columns, str, NDArray[Any]]] = field(default_factory=list)
    splits: Splits | None = None


def operand(node: Node, graph: Graph, index: int) -> Tensor:
    return required(node, graph, index)


def result(node: Node, graph: Graph) -> Tensor:
    return output_tensor(node, graph)


def dtype_of(tensor: Tensor) -> str:
    """NumPy name of the tensor's raw integers; a mask is int32."""
    if isinstance(tensor.type, Integer) and tensor.type.dtype == "int64":
        return "int64"
    return tensor.type.dtype if isinstance(tensor.type, Quantized) else "int32"


def zero_of(tensor: Tensor) -> int:
    return quantized(tensor).zero_point[0]


def bind_arrays(graph: Graph, names: dict[str, str]) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    """Split operands into graph tensors and constants."""
    variable = {param: name for param, name in names.items() if graph.tensors[name].data is None}
    fixed = {param: graph.tensors[name].data for param, name in names.items() if param not in variable}
    return variable, fixed  # type: ignore[return-value]


def root(views: Mapping[str, str], name: str) -> str:
    """The tensor whose bytes ``name`` shows."""
    while name in views:
        name = views[name]
    return name
