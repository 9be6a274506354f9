"""Which nodes stay float: Softmax, Sigmoid, custom ops, layer normalisation (also decomposed), and what users name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx

from epu.errors import UserError
from epu.log import get_logger
from epu.names import near

log = get_logger("quantize")

FLOAT_OP_TYPES = ("Softmax", "Sigmoid", "LayerNormalization", "QuadricCustomOp")
CUSTOM_OP_PREFIX = "QuadricCustomOp"


def nodes_to_exclude(
    model: onnx.ModelProto, exclude: Sequence[str] = (), *, original: onnx.ModelProto | None = None
) -> list[str]:
    """Return the names of the nodes to keep float, in graph order.

    ``exclude`` adds node names or op types of the model, or of ``original`` before its optimisation. Raises UserError
    for a name that is neither.
    """
    _check_known(exclude, [model, original or model])
    log.debug("Full exclusion set for quantization: %s", [*FLOAT_OP_TYPES, *exclude])
    groups = {node.name for group in layer_norm_groups(model.graph) for node in group}
    return [
        node.name
        for node in model.graph.node
        if node.op_type in FLOAT_OP_TYPES
        or node.op_type.startswith(CUSTOM_OP_PREFIX)
        or node.name in groups
        or node.name in exclude
        or node.op_type in exclude
    ]


def _check_known(exclude: Sequence[str], models: Iterable[onnx.ModelProto]) -> None:
    if isinstance(exclude, str):
        raise UserError(f"exclude must be a list of node names or op types, found '{exclude}'. Write ['{exclude}'].")
    known = {text for model in models for node in model.graph.node for text in (node.name, node.op_type) if text}
    for entry in exclude:
        if entry not in known:
            raise UserError(
                f"exclude: '{entry}' is neither a node name nor an op type of the model. {near(entry, known)}"
            )


class _Wiring:
    """Who makes and who reads each tensor of a graph."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.maker = {name: node for node in graph.node for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def made_by(self, tensor: str, *op_types: str) -> onnx.NodeProto | None:
        node = self.maker.get(tensor)
        return node if node is not None and node.op_type in op_types else None

    def only_reader(self, node: onnx.NodeProto, op_type: str) -> onnx.NodeProto | None:
        readers = self.readers.get(node.output[0], [])
        return readers[0] if len(readers) == 1 and readers[0].op_type == op_type else None


def layer_norm_groups(graph: onnx.GraphProto) -> list[list[onnx.NodeProto]]:
    """Return each decomposed layer normalisation, found by its structure alone.

    ReduceMean, Sub, Pow or Mul(x, x), ReduceMean, Add, Sqrt, Div, and, where present, Mul (gamma) and Add (beta).
    """
    wiring = _Wiring(graph)
    divisions = (node for node in graph.node if node.op_type == "Div")
    return [group for node in divisions if (group := _group_of(node, wiring))]


def _group_of(division: onnx.NodeProto, wiring: _Wiring) -> list[onnx.NodeProto]:
    """Return the nodes of the layer normalisation that ends in ``division``; empty where there is none."""
    centre = wiring.made_by(division.input[0], "Sub")
    root = wiring.made_by(division.input[1], "Sqrt")
    epsilon = root and wiring.made_by(root.input[0], "Add")
    variance = epsilon and _first_made(epsilon, wiring, "ReduceMean")
    square = variance and wiring.made_by(variance.input[0], "Pow", "Mul")
    mean = centre and wiring.made_by(centre.input[1], "ReduceMean")
    if not (centre and root and epsilon and variance and square and mean) or mean.input[0] != centre.input[0]:
        return []
    centre_again = _squared(square, wiring)
    if centre_again is None or list(centre_again.input) != list(centre.input):
        return []
    chain = [mean, centre, square, variance, epsilon, root, division]
    if centre_again.name != centre.name:
        chain.insert(2, centre_again)
    return [*chain, *_affine(division, wiring)]


def _first_made(node: onnx.NodeProto, wiring: _Wiring, op_type: str) -> onnx.NodeProto | None:
    made = (wiring.made_by(name, op_type) for name in node.input)
    return next((maker for maker in made if maker is not None), None)


def _squared(square: onnx.NodeProto, wiring: _Wiring) -> onnx.NodeProto | None:
    """Return the Sub whose result ``square`` squares."""
    if square.op_type == "Mul" and square.input[0] != square.input[1]:
        return None
    return wiring.made_by(square.input[0], "Sub")


def _affine(division: onnx.NodeProto, wiring: _Wiring) -> Iterator[onnx.NodeProto]:
    gain = wiring.only_reader(division, "Mul")
    if gain is None:
        return
    yield gain
    offset = wiring.only_reader(gain, "Add")
    if offset is not None:
        yield offset
