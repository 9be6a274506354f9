"""ConvTranspose by the kernels of convolution, matrix product and moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.graph import Graph, Node, Quantized, Tensor, TensorType
from epu.operators.conv_transpose import flipped, is_by_pixel, kernel_size, stuffed_pads
from epu.operators.row import input_tensor, ints_attribute, output_tensor, quantized, required

PRODUCTS = ("Gemm", "Conv", "QLinearConv")


def expand_conv_transpose(graph: Graph) -> Graph:
    """Where the kernel is as large as the stride, a fixed ``ConvTranspose`` becomes Transpose -> Gemm -> Transpose and
    ``QLinearConvTranspose`` a 1 x 1 QLinearConv with DepthToSpace; else both become ZeroStuff -> convolution."""
    tensors, nodes = dict(graph.tensors), []
    for node in graph.nodes:
        if node.op in EXPANSIONS:
            made = _Made(node, graph, tensors)
            EXPANSIONS[node.op](made)
            nodes += made.nodes
        else:
            nodes.append(node)
    return replace(graph, nodes=nodes, tensors=tensors)


@dataclass
class _Made:
    """The nodes in the place of one."""

    node: Node
    graph: Graph
    tensors: dict[str, Tensor]
    nodes: list[Node] = field(default_factory=list)

    def tensor(self, label: str, shape: tuple[int, ...], kind: TensorType, data: NDArray[Any] | None = None) -> str:
        name = f"{self.node.name}:{label}"
        self.tensors[name] = Tensor(name, shape, kind, data)
        return name

    def add(self, label: str, op: str, inputs: list[str], output: str, attrs: dict[str, Any]) -> None:
        """A node before the last; the one with the products covers what the replaced one did."""
        covers = self.node.covers if op in PRODUCTS else []
        self.nodes.append(Node(f"{self.node.name}:{label}", op, inputs, [output], attrs, covers))

    def end(self, op: str, inputs: list[str], attrs: dict[str, Any]) -> None:
        """The last node has the name and the output of the one replaced."""
        covers = self.node.covers if op in PRODUCTS else []
        self.nodes.append(replace(self.node, op=op, inputs=inputs, attrs=attrs, covers=covers))


def _fixed(made: _Made) -> None:
    (_by_rows if is_by_pixel(made.node, made.graph) else _stuffed)(made)


def _by_rows(made: _Made) -> None:
    """[pixels, channels] x [channels, filters * kernel], a kernel's results laid beside each other."""
    node, graph = made.node, made.graph
    x, w, y = required(node, graph, 0), required(node, graph, 1), output_tensor(node, graph)
    (batch, channels, height, width), (filters, rows, columns) = x.shape, w.shape[1:]
    assert w.data is not None
    taps = rows * columns
    turned = made.tensor("pixels", (batch, height, width, channels), x.type)
    flat = made.tensor("rows", (batch * height * width, channels), x.type)
    weights = made.tensor("weights", (channels, filters * taps), w.type, w.data.reshape(channels, -1))
    product = made.tensor("product", (batch * height * width, filters * taps), y.type)
    seen = made.tensor("kernels", (batch, height, width, filters, rows, columns), y.type)
    spread = made.tensor("spread", (batch, filters, height, rows, width, columns), y.type)
    made.add("turn", "Transpose", [x.name], turned, {"perm": (0, 2, 3, 1)})
    made.add("flatten", "Reshape", [turned], flat, {})
    made.add("multiply", "Gemm", [flat, weights, *_bias(made, taps)], product, {})
    made.add("unfold", "Reshape", [product], seen, {})
    made.add("spread", "Transpose", [seen], spread, {"perm": (0, 3, 1, 4, 2, 5)})
    made.end("Reshape", [spread], {})


def _bias(made: _Made, taps: int) -> list[str]:
    """The bias of each filter for all positions of its kernel."""
    bias = input_tensor(made.node, made.graph, 2)
    if bias is None:
        return []
    assert bias.data is not None
    data = np.repeat(bias.data.reshape(-1), taps)
    kind = bias.type
    if isinstance(kind, Quantized) and kind.axis is not None:
        kind = replace(kind, scale=_repeated(kind.scale, taps), zero_point=_repeated(kind.zero_point, taps))
    return [made.tensor("bias", data.shape, kind, data)]


def _repeated(items: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    return tuple(item for item in items for _ in range(count))


def _int8(made: _Made) -> None:
    node, graph = made.node, made.graph
    kernel = kernel_size(node, graph)
    simple = is_by_pixel(node, graph) and kernel[0] == kernel[1]
    (_by_pixel if simple else _stuffed)(made)


def _by_pixel(made: _Made) -> None:
    node, graph = made.node, made.graph
    x, w, y = required(node, graph, 0), required(node, graph, 1), output_tensor(node, graph)
    (channels, filters, block, _), kind = w.shape, quantized(w)
    assert w.data is not None
    taps = block * block
    data = np.ascontiguousarray(w.data.reshape(channels, filters * taps).T).reshape(filters * taps, channels, 1, 1)
    if kind.axis is not None:
        kind = replace(kind, scale=_repeated(kind.scale, taps), zero_point=_repeated(kind.zero_point, taps), axis=0)
    weights = made.tensor("weights", data.shape, kind, data)
    deep = made.tensor("depth", (x.shape[0], filters * taps, *x.shape[2:]), y.type)
    made.add("convolve", "QLinearConv", [x.name, weights, *_bias(made, taps)], deep, {"kernel_shape": (1, 1)})
    made.end("DepthToSpace", [deep], {"blocksize": block, "mode": "CRD"})


def _stuffed(made: _Made) -> None:
    node, graph = made.node, made.graph
    x, w, groups = required(node, graph, 0), required(node, graph, 1), int(node.attrs.get("group", 1))
    assert w.data is not None
    data = flipped(w.data, groups)
    weights = made.tensor("weights", data.shape, _by_filter(w.type, groups), data)
    ones = (1,) * (len(x.shape) - 2)
    strides, source = ints_attribute(node, "strides", ones), x.name
    if max(strides) > 1:
        sizes = tuple((n - 1) * s + 1 for n, s in zip(x.shape[2:], strides))
        source = made.tensor("stuffed", (*x.shape[:2], *sizes), x.type)
        zero = x.type.zero_point[0] if isinstance(x.type, Quantized) else 0
        made.add("stuff", "ZeroStuff", [x.name], source, {"strides": strides, "value": zero})
    attrs = {"kernel_shape": data.shape[2:], "strides": ones, "group": groups, "pads": stuffed_pads(node, graph)}
    attrs["dilations"] = ints_attribute(node, "dilations", ones)
    op = "QLinearConv" if isinstance(w.type, Quantized) else "Conv"
    made.end(op, [source, weights, *_bias(made, 1)], attrs)


def _by_filter(kind: TensorType, groups: int) -> TensorType:
    """The type of the weights with the filters of all groups along the first axis."""
    if not isinstance(kind, Quantized) or kind.axis is None:
        return kind
    return replace(kind, scale=kind.scale * groups, zero_point=kind.zero_point * groups, axis=0)


EXPANSIONS: dict[str, Callable[[_Made], None]] = {"ConvTranspose": _fixed, "QLinearConvTranspose": _int8}
