"""WaveFormer's attention as a custom operator: head split, RoPE, Q·K, softmax and A·V of a block in one node.

The example of docs/custom_ops.md: a module of custom operators, and the replacement of the subgraphs in the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from epu.custom_compose import Composer
from epu.custom_ops import CustomCall, CustomOp, CustomOutput
from epu.graph import Quantized

if TYPE_CHECKING:
    from onnx import ModelProto

    from epu.onnx_load import ModelSource

NAME = "waveAttention"
PROJECTED, MERGED = "/blocks.0/attn/qkv/Gemm_output_0", "/blocks.0/attn/Reshape_6_output_0"  # of the first block

# inputs of the node: the projected tokens, then the weights of the subgraph in order of first use
QKV, COSINE, SINE, SCALE, SHARES, VALUES, MIXED = 0, 1, 2, 3, 4, 6, 8  # a zero point follows each scale


def prepare_custom_ops_graph(model: ModelSource) -> ModelProto:
    """Return WaveFormer (int8) with each block's attention as a ``waveAttention`` node; logs what became of it."""
    from epu.custom_match import replace_subgraphs

    return replace_subgraphs(model, NAME, before=[PROJECTED], after=MERGED)


def attention_types(call: CustomCall) -> CustomOutput:
    """Tokens x 3 widths in, tokens x width out."""
    tokens, projected = call.inputs[QKV].shape
    return CustomOutput((tokens, projected // 3))


def attention_nodes(build: Composer, call: CustomCall) -> str:
    """The same numbers as the body's with fewer moves: heads are split where they lie, and codes are moved, not reals."""
    tokens, width = attention_types(call).shape
    size = 2 * call.inputs[COSINE].shape[-1]
    split = build.reshape(call.inputs[QKV].name, (1, tokens, 3, width // size, size), "Reshape")
    query, key, value = (build.gather(split, k, 2) for k in range(3))
    query = build.transpose(rotate(build, call, query, 0), (0, 2, 1, 3), "Transpose_2")
    key = build.transpose(rotate(build, call, key, 1), (0, 2, 3, 1), "Transpose_4")
    scaled = build.elementwise("Mul", query, call.inputs[SCALE].name, tensor="Mul_8")
    shares = build.softmax(build.matmul(scaled, key, tensor="MatMul"), "Softmax")
    shares = build.quantize(shares, codes(call, SHARES), "QuantizeLinear")
    value = build.transpose(build.quantize(value, codes(call, VALUES)), (0, 2, 1, 3), "QuantizeLinear_1")
    mixed = build.matmul(shares, value, codes(call, MIXED), "QLinearMatMul")
    merged = build.dequantize(build.transpose(mixed, (0, 2, 1, 3)), "Transpose_5")
    return build.reshape(merged, (tokens, width))


def rotate(build: Composer, call: CustomCall, heads: str, which: int) -> str:
    """RoPE of [1, tokens, heads, size]; ``which`` is 0 for the queries, 1 for the keys."""
    cosine, sine = call.inputs[COSINE].name, call.inputs[SINE].name
    _, tokens, count, size = build.shape(heads)
    pairs = build.reshape(heads, (1, tokens, count, size // 2, 2), numbered("Reshape", 1 + 2 * which))
    even = build.gather(pairs, 0, -1, numbered("Gather", 3 + 2 * which))
    odd = build.gather(pairs, 1, -1, numbered("Gather", 4 + 2 * which))
    names = [numbered("Mul", 4 * which + k) for k in range(4)]
    terms = ((even, cosine), (odd, sine), (even, sine), (odd, cosine))
    products = [build.elementwise("Mul", *term, tensor=name) for term, name in zip(terms, names)]
    turned = (
        build.elementwise("Sub", *products[:2], tensor=numbered("Sub", which)),
        build.elementwise("Add", *products[2:], tensor=numbered("Add", which)),
    )
    columns = [
        build.reshape(half, (1, tokens, count, size // 2, 1), numbered("Unsqueeze", 2 * which + k))
        for k, half in enumerate(turned)
    ]
    joined = build.concat(columns, -1, numbered("Concat", which))
    return build.reshape(joined, (1, tokens, count, size), numbered("Reshape", 2 + 2 * which))


def numbered(op: str, number: int) -> str:
    """The name of an operator's tensor in the body."""
    return f"{op}_{number}" if number else op


def codes(call: CustomCall, scale: int) -> Quantized:
    """int8 with the scale of that input and the zero point of the next."""
    return Quantized("int8", (float(call.constants[scale]),), (int(call.constants[scale + 1]),))


wave_attention = CustomOp(NAME, types=attention_types, compose=attention_nodes)
