"""WaveFormer, a transformer that tells gestures from surface EMG: the float network, and the int8 one made of it.

Electrodes x patches of 50 samples are 160 tokens, a class token makes 161. Names, sizes and node counts are those of the
PyTorch export that the int8 model of the seed notebook comes from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from epu.models.waveformer_weights import WEIGHTS_FILE, load_weights
from epu.onnx_load import load_model

Array = NDArray[np.float32]

OPSET = 17
IR_VERSION = 8
ELECTRODES, SAMPLES, PATCH = 8, 1000, 50
TOKENS = 1 + ELECTRODES * SAMPLES // PATCH
WIDTH, BLOCKS, HEADS, HEAD_SIZE = 256, 6, 8, 32
CLASSES = 6
EPSILON = 1e-5
ROTARY_BASE = 10000.0  # Su et al. 2021

INT8_FILE = WEIGHTS_FILE.with_name("waveformer_int8.onnx")
KEPT_INT8 = ("/attn/qkv/Gemm", "/attn/proj/Gemm", "/attn/MatMul_1")  # of the attention; the rest of it stays float


def waveformer(*, quantized: bool = False) -> onnx.ModelProto:
    """Return WaveFormer with trained weights: ``input`` [1, 1, 8, 1000] to ``logits`` [1, 6], opset 17.

    Float32, or with ``quantized`` the int8 QOperator model of ``waveformer_int8_file``.
    """
    return load_model(INT8_FILE) if quantized else float_waveformer(load_weights())


def waveformer_int8_file() -> Path:
    """Return the installed int8 model; its ranges lie beside it under the same name plus ``.tranges``."""
    return INT8_FILE


def attention_exclusions(model: onnx.ModelProto) -> list[str]:
    """Return the nodes that quantisation leaves float: Q·K, softmax, RoPE and the layout operations between them."""
    names = [node.name for node in model.graph.node]
    return [name for name in names if "/attn/" in name and not name.endswith(KEPT_INT8)]


def rotary_tables() -> tuple[Array, Array]:
    """Return cosine and sine [1, tokens, 1, head size / 2] of RoPE's angles; pair i turns by base**(-2i / size)."""
    rate = ROTARY_BASE ** (-np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
    angle = (np.arange(TOKENS)[:, None] * rate)[None, :, None]
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


class _Builder:
    """Nodes in order of creation, numbered within their scope and named as PyTorch's exporter does."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers = {name: numpy_helper.from_array(array, name) for name, array in weights.items()}
        self.used: Counter[str] = Counter()

    def constant(self, name: str, values: Any) -> str:
        self.initializers[name] = numpy_helper.from_array(np.asarray(values), name)
        return name

    def node(self, scope: str, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        stem = f"{scope}/{op_type}"
        name = f"{stem}_{self.used[stem]}" if self.used[stem] else stem
        self.used[stem] += 1
        self.nodes.append(helper.make_node(op_type, list(inputs), [f"{name}_output_0"], name=name, **attributes))
        return f"{name}_output_0"

    def reshape(self, scope: str, source: str, *shape: int) -> str:
        return self.node(scope, "Reshape", [source, self.constant(f"shape_{'x'.join(map(str, shape))}", shape)])

    def transpose(self, scope: str, source: str, *perm: int) -> str:
        return self.node(scope, "Transpose", [source], perm=perm)

    def pick(self, scope: str, source: str, index: int, axis: int) -> str:
        return self.node(scope, "Gather", [source, self.constant(f"index_{index}", np.int64(index))], axis=axis)

    def gemm(self, scope: str, parameter: str, source: str) -> str:
        return self.node(scope, "Gemm", [source, f"{parameter}.weight", f"{parameter}.bias"], transB=1)

    def layer_norm(self, scope: str, parameter: str, source: str) -> str:
        inputs = [source, f"{parameter}.weight", f"{parameter}.bias"]
        return self.node(scope, "LayerNormalization", inputs, axis=-1, epsilon=EPSILON)

    def gelu(self, scope: str, source: str) -> str:
        root = self.constant("root_of_two", np.float32(np.sqrt(2)))
        error = self.node(scope, "Erf", [self.node(scope, "Div", [source, root])])
        gate = self.node(scope, "Add", [error, self.constant("one", np.float32(1))])
        product = self.node(scope, "Mul", [source, gate])
        return self.node(scope, "Mul", [product, self.constant("half", np.float32(0.5))])


def float_waveformer(weights: Mapping[str, Array]) -> onnx.ModelProto:
    """Return the float32 network with the parameters given, named as in the PyTorch checkpoint."""
    build = _Builder(weights)
    tensor = _patches(build)
    for index in range(BLOCKS):
        tensor = _block(build, f"/blocks.{index}", f"blocks.{index}", tensor)
    tensor = build.pick("", build.layer_norm("/norm", "norm", tensor), 0, 1)
    build.gemm("/head", "head", build.layer_norm("/fc_norm", "fc_norm", tensor))
    build.nodes[-1].output[0] = "logits"
    return _model(build)


def _patches(build: _Builder) -> str:
    """Append the embedding: a token per electrode and 50 samples, the class token before them."""
    scope, steps = "/patch_embed", SAMPLES // PATCH
    kernel = [f"patch_embed.proj.{name}" for name in ("weight", "bias")]
    image = build.node(
        f"{scope}/proj", "Conv", ["input", *kernel], kernel_shape=[1, PATCH], strides=[1, PATCH], pads=[0] * 4
    )
    normed = build.layer_norm(f"{scope}/norm", "patch_embed.norm", build.transpose(scope, image, 0, 2, 3, 1))
    active = build.gelu(f"{scope}/act_ft", build.transpose(scope, normed, 0, 3, 1, 2))
    flat = build.reshape(scope, active, 1, WIDTH, ELECTRODES * steps)
    return build.node("", "Concat", ["cls_token", build.transpose(scope, flat, 0, 2, 1)], axis=1)


def _block(build: _Builder, scope: str, parameter: str, source: str) -> str:
    normed = build.layer_norm(f"{scope}/norm1", f"{parameter}.norm1", source)
    summed = build.node(scope, "Add", [source, _attention(build, f"{scope}/attn", f"{parameter}.attn", normed)])
    normed = build.layer_norm(f"{scope}/norm2", f"{parameter}.norm2", summed)
    return build.node(scope, "Add", [summed, _mlp(build, f"{scope}/mlp", f"{parameter}.mlp", normed)])


def _attention(build: _Builder, scope: str, parameter: str, source: str) -> str:
    """Append self-attention over [1, tokens, width]; heads are split in five dimensions."""
    flat = build.reshape(scope, source, TOKENS, WIDTH)
    projected = build.gemm(f"{scope}/qkv", f"{parameter}.qkv", flat)
    split = build.reshape(scope, projected, 1, TOKENS, 3, HEADS, HEAD_SIZE)
    heads = build.transpose(scope, split, 2, 0, 3, 1, 4)
    query, key, value = (build.pick(scope, heads, index, 0) for index in range(3))
    query = build.transpose(scope, _rotate(build, scope, query), 0, 2, 1, 3)
    key = build.transpose(scope, _rotate(build, scope, key), 0, 2, 3, 1)
    scale = build.constant("attention_scale", np.float32(HEAD_SIZE**-0.5))
    scores = build.node(scope, "MatMul", [build.node(scope, "Mul", [query, scale]), key])
    mixed = build.node(scope, "MatMul", [build.node(scope, "Softmax", [scores], axis=-1), value])
    merged = build.reshape(scope, build.transpose(scope, mixed, 0, 2, 1, 3), TOKENS, WIDTH)
    return build.reshape(scope, build.gemm(f"{scope}/proj", f"{parameter}.proj", merged), 1, TOKENS, WIDTH)


def _rotate(build: _Builder, scope: str, heads: str) -> str:
    """Append RoPE: [1, heads, tokens, size] to [1, tokens, heads, size], each pair turned by its token's angle."""
    tables = zip(("rotary_cosine", "rotary_sine"), rotary_tables())
    cosine, sine = (build.constant(name, table) for name, table in tables)
    pairs = build.reshape(scope, build.transpose(scope, heads, 0, 2, 1, 3), 1, TOKENS, HEADS, HEAD_SIZE // 2, 2)
    even, odd = build.pick(scope, pairs, 0, -1), build.pick(scope, pairs, 1, -1)

    def by(half: str, table: str) -> str:
        return build.node(scope, "Mul", [half, table])

    turned = [
        build.node(scope, "Sub", [by(even, cosine), by(odd, sine)]),
        build.node(scope, "Add", [by(even, sine), by(odd, cosine)]),
    ]
    axes = build.constant("axis_last", np.array([-1]))
    stacked = [build.node(scope, "Unsqueeze", [half, axes]) for half in turned]
    return build.reshape(scope, build.node(scope, "Concat", stacked, axis=-1), 1, TOKENS, HEADS, HEAD_SIZE)


def _mlp(build: _Builder, scope: str, parameter: str, source: str) -> str:
    flat = build.reshape(scope, source, TOKENS, WIDTH)
    hidden = build.gelu(f"{scope}/mod/act", build.gemm(f"{scope}/mod/fc1", f"{parameter}.fc1", flat))
    return build.reshape(scope, build.gemm(f"{scope}/mod/fc2", f"{parameter}.fc2", hidden), 1, TOKENS, WIDTH)


def _model(build: _Builder) -> onnx.ModelProto:
    graph = helper.make_graph(
        build.nodes,
        "waveformer",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 1, ELECTRODES, SAMPLES])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES])],
        list(build.initializers.values()),
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="epu")
    return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
