"""The DETR transformer encoder (post-norm) as its PyTorch export names it, with seeded weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from epu.models.weights import bias, layer_norm_gain, linear_weight
from epu.simulator.errors import UserError

Map = NDArray[np.float64]

OPSET = 13
IR_VERSION = 8
EPSILON = 1e-5
TEMPERATURE = 10000.0  # of the sinusoidal position embedding, Carion et al. 2020


class _Builder:
    """Nodes and initializers in order of creation; an output is named after its node as PyTorch does."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, values: Any) -> str:
        self.initializers[name] = numpy_helper.from_array(np.asarray(values), name)
        return name

    def node(self, name: str, inputs: Sequence[str], **attributes: Any) -> str:
        op_type = name.rsplit("/", 1)[1].split("_")[0]
        output = f"{name}_output_0"
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], name=name, **attributes))
        return output

    def linear(self, path: str, source: str, inputs: int, outputs: int, gain: float = 1.0) -> str:
        parameter = path[1:].replace("/", ".")
        weight = self.constant(f"{parameter}.weight", linear_weight(self.random, inputs, outputs, gain))
        offset = self.constant(f"{parameter}.bias", bias(self.random, outputs, 0.05))
        return self.node(f"{path}/Add", [offset, self.node(f"{path}/MatMul", [source, weight])])

    def layer_norm(self, path: str, source: str, size: int) -> str:
        parameter = path[1:].replace("/", ".")
        two = self.constant("two", np.float32(2))
        epsilon = self.constant("layer_norm_epsilon", np.float32(EPSILON))
        gamma = self.constant(f"{parameter}.weight", layer_norm_gain(self.random, size))
        beta = self.constant(f"{parameter}.bias", bias(self.random, size, 0.1))
        centred = self.node(f"{path}/Sub", [source, self.node(f"{path}/ReduceMean", [source], axes=[-1])])
        square = self.node(f"{path}/Pow", [centred, two])
        variance = self.node(f"{path}/ReduceMean_1", [square], axes=[-1])
        deviation = self.node(f"{path}/Sqrt", [self.node(f"{path}/Add", [variance, epsilon])])
        scaled = self.node(f"{path}/Mul", [self.node(f"{path}/Div", [centred, deviation]), gamma])
        return self.node(f"{path}/Add_1", [scaled, beta])


def _attention(build: _Builder, path: str, source: str, d_model: int, heads: int, sequence: int) -> str:
    """Append multi-head self-attention of [1, sequence, d_model]; positions enter queries and keys only."""
    size = d_model // heads
    split = build.constant("shape_split", np.array([1, sequence, heads, size]))
    merged = build.constant("shape_heads", np.array([heads, sequence, size]))
    scale = build.constant("attention_scale", np.float32(size**-0.5))

    def apart(tensor: str, suffix: str) -> str:
        split_up = build.node(f"{path}/Reshape{suffix}", [tensor, split])
        return build.node(f"{path}/Transpose{suffix}", [split_up], perm=[0, 2, 1, 3])

    def heads_first(tensor: str, suffix: str) -> str:
        return build.node(f"{path}/Reshape{suffix}", [tensor, merged])

    placed = build.node(f"{path}/Add", [source, "pos_embed"])
    query = build.node(f"{path}/Mul", [build.linear(f"{path}/q_proj", placed, d_model, d_model, 1.5), scale])
    key = apart(build.linear(f"{path}/k_proj", placed, d_model, d_model, 1.5), "")
    value = apart(build.linear(f"{path}/v_proj", source, d_model, d_model), "_1")
    query = heads_first(apart(query, "_2"), "_3")
    key, value = heads_first(key, "_4"), heads_first(value, "_5")
    scores = build.node(f"{path}/MatMul", [query, build.node(f"{path}/Transpose_3", [key], perm=[0, 2, 1])])
    mixed = build.node(f"{path}/MatMul_1", [build.node(f"{path}/Softmax", [scores], axis=-1), value])
    by_head = build.constant("shape_by_head", np.array([1, heads, sequence, size]))
    mixed = build.node(f"{path}/Reshape_6", [mixed, by_head])
    turned = build.node(f"{path}/Transpose_4", [mixed], perm=[0, 2, 1, 3])
    flat = build.constant("shape_flat", np.array([1, sequence, d_model]))
    return build.linear(f"{path}/out_proj", build.node(f"{path}/Reshape_7", [turned, flat]), d_model, d_model, 0.7)


def _layer(build: _Builder, path: str, source: str, d_model: int, heads: int, ffn: int, sequence: int) -> str:
    attention = _attention(build, f"{path}/self_attn", source, d_model, heads, sequence)
    summed = build.node(f"{path}/Add", [source, attention])
    normed = build.layer_norm(f"{path}/self_attn_layer_norm", summed, d_model)
    hidden = build.node(f"{path}/activation_fn/Relu", [build.linear(f"{path}/fc1", normed, d_model, ffn)])
    summed = build.node(f"{path}/Add_1", [normed, build.linear(f"{path}/fc2", hidden, ffn, d_model, 1.2)])
    return build.layer_norm(f"{path}/final_layer_norm", summed, d_model)


def detr_encoder(
    layers: int = 6, d_model: int = 256, heads: int = 8, ffn: int = 2048, sequence: int = 360, seed: int = 0
) -> onnx.ModelProto:
    """Return the float32 DETR encoder, opset 13, node names as in the PyTorch export.

    Inputs ``src`` and ``pos_embed`` and output ``encoder_memory``: [1, sequence, d_model] float32. The same
    arguments give the same bytes. Raises UserError if ``d_model`` is not a multiple of ``heads`` or ``layers`` < 1.
    """
    if layers < 1 or heads < 1 or d_model % heads:
        raise UserError(
            f"detr_encoder: layers must be at least 1 and d_model a multiple of heads, found layers={layers}, "
            f"d_model={d_model}, heads={heads}. Change these arguments."
        )
    build = _Builder(seed)
    tensor = "src"
    for index in range(layers):
        tensor = _layer(build, f"/encoder/layers.{index}", tensor, d_model, heads, ffn, sequence)
    build.nodes[-1].output[0] = "encoder_memory"
    return _model(build, [1, sequence, d_model])


def _model(build: _Builder, shape: list[int]) -> onnx.ModelProto:
    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        build.nodes,
        "detr_encoder",
        [value("src"), value("pos_embed")],
        [value("encoder_memory")],
        list(build.initializers.values()),
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="epu")
    return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def detr_inputs(seed: int = 0, *, d_model: int = 256, sequence: int = 360) -> dict[str, NDArray[np.float32]]:
    """Return ``src``, a smooth feature map with noise, and ``pos_embed``, its sinusoidal positions.

    Both are [1, sequence, d_model] float32; the map is the most square height x width of ``sequence`` places.
    ``d_model`` must be a multiple of 4 (UserError).
    """
    if d_model % 4:
        raise UserError(f"detr_inputs: d_model must be a multiple of 4, found {d_model}. Change the argument.")
    width = max(w for w in range(1, int(sequence**0.5) + 1) if sequence % w == 0)
    height = sequence // width
    random = np.random.default_rng(seed)
    features = _smooth_map(random, height, width, d_model)
    features += 0.4 * random.standard_normal(features.shape)
    shape = (1, sequence, d_model)
    return {
        "src": features.reshape(shape).astype(np.float32),
        "pos_embed": _positions(height, width, d_model).reshape(shape).astype(np.float32),
    }


def _smooth_map(random: np.random.Generator, height: int, width: int, channels: int) -> Map:
    """Return [height, width, channels]: coarse noise, linearly interpolated."""
    coarse = random.standard_normal((8, 8, channels))
    smooth: Map = np.einsum("hi,wj,ijc->hwc", _interpolation(height, 8), _interpolation(width, 8), coarse)
    return smooth


def _interpolation(size: int, knots: int) -> Map:
    """Return [size, knots]: row i holds the linear weights of the knots at place i."""
    place = np.linspace(0, knots - 1, size)[:, None]
    return np.maximum(0.0, 1.0 - np.abs(place - np.arange(knots)))


def _positions(height: int, width: int, d_model: int) -> Map:
    """Return [height, width, d_model]: sine and cosine of the row, then of the column (Carion et al. 2020)."""
    rows = np.broadcast_to(_sinusoid(height, d_model // 2)[:, None], (height, width, d_model // 2))
    columns = np.broadcast_to(_sinusoid(width, d_model // 2)[None], (height, width, d_model // 2))
    return np.concatenate([rows, columns], axis=2)


def _sinusoid(size: int, channels: int) -> Map:
    phase = np.arange(1, size + 1)[:, None] / size * 2 * np.pi
    angle = phase / TEMPERATURE ** (np.arange(0, channels, 2) / channels)
    pairs: Map = np.stack([np.sin(angle), np.cos(angle)], axis=2)
    return pairs.reshape(size, channels)
