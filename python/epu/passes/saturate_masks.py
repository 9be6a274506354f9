"""Keep the fraction bits of scores beside a mask of "minus infinity" (docs/arithmetic.md, Masks before a softmax)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from math import frexp
from typing import Any

import numpy as np

from epu.fixed_formats import MASK, TRANGES, WORD_BITS, fraction_bits
from epu.graph import Fixed, Float, Graph, Node, Tensor
from epu.operators import Interval
from epu.operators.row import magnitude, spread
from epu.passes.assign_fraction_bits import fixed_tensor

MASKING = 1e3  # no score is that far below zero; -1e4, -1e9 and -3.4e38 are usual masks
SENTINEL = 1e9  # no activation is that large
BELOW = 32.0  # under the lowest score: exp(-22) is 0 in Q30
BEYOND = 4.0  # a summand's word reaches that many times the sum's, so that the sum saturates whatever the score
FACTOR_MARGIN = 8  # bits to spare in the shift of a mask's product
EXPONENTIALS = ("Softmax", "SoftmaxExp")
MOVES = frozenset("Expand Flatten Identity Reshape Slice Squeeze Tile Transpose Unsqueeze".split())
CHOICES = {"Add": (0, 1), "Where": (1, 2)}  # operators that pass a mask on, and the operands it comes by


def saturate_masks(graph: Graph) -> Graph:
    """A tensor below -1000 that reaches softmaxes alone, as "minus infinity" → range of the scores, source "mask": what is
    lower saturates, and its exponential is 0 all the same. Needs ranges; fraction bits follow from them."""
    masks = _Masks(graph)
    found = [name for name in graph.tensors if masks.is_mask(name)]
    tensors = {name: replace(graph.tensors[name], range=masks.range(name), range_source=MASK) for name in found}
    if not tensors:
        return graph
    graph = replace(graph, tensors={**graph.tensors, **tensors})
    for node in [each for each in graph.nodes if each.op == "Mul" and each.outputs[0] in tensors]:
        graph = _with_factor(graph, node)
    return graph


def exposed_masks(graph: Graph, to_softmax: Collection[str]) -> list[Node]:
    """Nodes that join scores and a mask in a tensor that leaves the graph, where it cannot saturate.

    ``to_softmax`` names the outputs that softmaxes outside read alone; of the others only those beyond 1e9 count, which
    no activation is.
    """
    lows = {name: graph.tensors[name].range for name in graph.outputs}
    limits = {name: MASKING if name in to_softmax else SENTINEL for name in lows}
    found = {name for name, ends in lows.items() if ends is not None and ends[0] < -limits[name]}
    return [node for node in graph.nodes if node.op in CHOICES and found & set(node.outputs)]


class _Masks:
    """Which tensors of a graph are masks, or scores with a mask, and how far down they must reach."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {name: node for node in graph.nodes for name in node.outputs}
        self.readers: dict[str, list[tuple[Node, int]]] = defaultdict(list)
        for node in graph.nodes:
            for index, name in enumerate(node.inputs):
                self.readers[name].append((node, index))
        self.is_mask: Any = cache(self._is_mask)
        self.ends_in_softmax: Any = cache(self._ends_in_softmax)
        self.range: Any = cache(self._range)

    def _is_mask(self, name: str) -> bool:
        tensor = self.graph.tensors[name]
        low = isinstance(tensor.type, Float) and tensor.range is not None and tensor.range[0] < -MASKING
        if not low or not self.ends_in_softmax(name):
            return False
        maker = self.makers.get(name)
        if maker is not None and maker.op in CHOICES:
            return any(self.is_mask(maker.inputs[index]) for index in CHOICES[maker.op])
        if maker is not None and maker.op in MOVES:
            return bool(self.is_mask(maker.inputs[0]))
        return self._is_source(tensor, maker)

    def _is_source(self, tensor: Tensor, maker: Node | None) -> bool:
        """Never positive, added to scores or chosen beside them, and no product whose factor cannot be made smaller."""
        joins = all(node.op in CHOICES or node.op in MOVES for node, _ in self.readers[tensor.name])
        if tensor.data is not None:
            return joins and float(np.max(tensor.data)) <= MASKING
        assert tensor.range is not None
        product = maker is not None and maker.op == "Mul"
        known = not product or any(self.graph.tensors[name].data is not None for name in maker.inputs)  # type: ignore[union-attr]
        return joins and known and tensor.range[1] <= 0

    def _ends_in_softmax(self, name: str) -> bool:
        readers = self.readers[name]
        return bool(readers) and name not in self.graph.outputs and all(self._passes_on(*each) for each in readers)

    def _passes_on(self, node: Node, index: int) -> bool:
        if node.op in EXPONENTIALS:
            return True
        if node.op == "ReduceMax":  # of a softmax in parts
            return all(reader.op in EXPONENTIALS for reader, _ in self.readers[node.outputs[0]])
        carried = index in CHOICES.get(node.op, ()) or (node.op in MOVES and index == 0)
        return carried and bool(self.ends_in_softmax(node.outputs[0]))

    def scores(self, name: str) -> Interval | None:
        """What the tensor holds where nothing is masked; None if all of it is."""
        tensor, maker = self.graph.tensors[name], self.makers.get(name)
        if not self.is_mask(name):
            return _with_headroom(tensor)
        if tensor.data is not None:
            kept = tensor.data[tensor.data >= -MASKING]
            return (float(kept.min()), float(kept.max())) if kept.size else None
        if maker is None or maker.op not in (*CHOICES, *MOVES):
            assert tensor.range is not None
            return tensor.range[1], 0.0
        if maker.op in MOVES:
            return self.scores(maker.inputs[0])
        parts = [part for index in CHOICES[maker.op] if (part := self.scores(maker.inputs[index])) is not None]
        if maker.op == "Add":
            return (sum(low for low, _ in parts), sum(high for _, high in parts)) if len(parts) == 2 else None
        return (min(low for low, _ in parts), max(high for _, high in parts)) if parts else None

    def _range(self, name: str) -> Interval:
        low, high = self.scores(name) or (0.0, 0.0)
        depth = max((self._depth(node, low) for node, _ in self.readers[name]), default=BELOW)
        return min(-depth, low), max(high, 0.0)

    def _depth(self, reader: Node, low: float) -> float:
        """How far below zero the tensor must reach for one reader."""
        if reader.op in CHOICES:
            return BEYOND * _word(self.range(reader.outputs[0]))
        if reader.op in MOVES:
            return -float(self.range(reader.outputs[0])[0])
        return BELOW - min(low, 0.0)


def _word(of: Interval) -> float:
    """The largest magnitude of the fixed-point word for a range."""
    return float(2.0 ** (WORD_BITS - fraction_bits(spread(of), MASK, "")))


def _with_headroom(tensor: Tensor) -> Interval:
    low, high = tensor.range or (0.0, 0.0)
    return (2 * min(low, 0.0), 2 * max(high, 0.0)) if tensor.range_source == TRANGES else (low, high)


def _with_factor(graph: Graph, node: Node) -> Graph:
    """A mask made by a product with a huge constant: a smaller constant, whose product saturates as well.

    Else the product, which is then shifted left, would leave 64 bits.
    """
    x, factor = sorted(node.inputs, key=lambda name: graph.tensors[name].data is not None)
    least = _bits(fixed_tensor(graph, graph.tensors[node.outputs[0]])) - _bits(fixed_tensor(graph, graph.tensors[x]))
    constant = graph.tensors[factor]
    ends = constant.range or (0.0, 0.0)
    if WORD_BITS - frexp(magnitude(ends))[1] >= least:
        return graph
    most = 2.0 ** (WORD_BITS - 1 - least - FACTOR_MARGIN)
    name = f"{factor}:{node.name}"
    low, high = (min(max(end, -most), most) for end in ends)
    clipped = replace(constant, name=name, range=(low, high), range_source=MASK)
    nodes = [
        replace(each, inputs=[name if each is node and n == factor else n for n in each.inputs]) for each in graph.nodes
    ]
    return replace(graph, nodes=nodes, tensors={**graph.tensors, name: clipped})


def _bits(tensor: Tensor) -> int:
    assert isinstance(tensor.type, Fixed), f"{tensor.name} has a range"
    return tensor.type.frac
