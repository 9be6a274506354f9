"""A small attention block with rotary positions, int8 between products as quantisation leaves it: native ONNX operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

TOKENS, HEADS, SIZE = 5, 2, 8
WIDTH = HEADS * SIZE
CODES = {"qkv": 1 / 32, "p": 1 / 127, "v": 1 / 32, "mixed": 1 / 40}  # scales


class _Model:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, NDArray[Any]] = {}

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"n/{output}", **attributes))
        return output

    def constant(self, name: str, value: Any) -> str:
        self.constants[name] = np.asarray(value)
        return name

    def codes(self, name: str) -> list[str]:
        scale = self.constant(f"{name}_scale", np.float32(CODES[name]))
        return [scale, self.constant(f"{name}_zero", np.int8(0))]


def small_attention() -> onnx.ModelProto:
    """``x`` [tokens, 3 * width] to ``y`` [tokens, width]; from ``qkv`` to ``merged`` it is what waveAttention replaces."""
    made = _Model()
    codes = made.node("QuantizeLinear", ["x", *made.codes("qkv")], "x_codes")
    qkv = made.node("DequantizeLinear", [codes, *made.codes("qkv")], "qkv")
    shape = made.constant("split_shape", [1, TOKENS, 3, HEADS, SIZE])
    heads = made.node("Transpose", [made.node("Reshape", [qkv, shape], "split")], "heads", perm=[2, 0, 3, 1, 4])
    query, key, value = (
        made.node("Gather", [heads, made.constant(f"index_{k}", np.int64(k))], f"part_{k}", axis=0) for k in range(3)
    )
    query = made.node("Transpose", [_rotated(made, query, "q")], "q_heads", perm=[0, 2, 1, 3])
    key = made.node("Transpose", [_rotated(made, key, "k")], "k_heads", perm=[0, 2, 3, 1])
    scaled = made.node("Mul", [query, made.constant("factor", np.float32(SIZE**-0.5))], "scaled")
    share = made.node("Softmax", [made.node("MatMul", [scaled, key], "scores")], "share", axis=-1)
    share = made.node("QuantizeLinear", [share, *made.codes("p")], "p_codes")
    value = made.node("QuantizeLinear", [value, *made.codes("v")], "v_codes")
    operands = [share, *made.codes("p"), value, *made.codes("v"), *made.codes("mixed")]
    mixed = made.node(
        "DequantizeLinear", [made.node("QLinearMatMul", operands, "mixed_codes"), *made.codes("mixed")], "mixed"
    )
    moved = made.node("Transpose", [mixed], "mixed_moved", perm=[0, 2, 1, 3])
    merged = made.node("Reshape", [moved, made.constant("merged_shape", [TOKENS, WIDTH])], "merged")
    made.node("Relu", [merged], "y")
    return _model(made)


def _rotated(made: _Model, heads: str, name: str) -> str:
    moved = made.node("Transpose", [heads], f"{name}_moved", perm=[0, 2, 1, 3])
    pairs = made.constant("pair_shape", [1, TOKENS, HEADS, SIZE // 2, 2])
    pairs = made.node("Reshape", [moved, pairs], f"{name}_pairs")
    even, odd = (made.node("Gather", [pairs, f"index_{k}"], f"{name}_{k}", axis=-1) for k in range(2))
    angle = (np.arange(TOKENS)[:, None] * 0.5 ** np.arange(SIZE // 2))[None, :, None]
    cosine, sine = (made.constant(n, f(angle).astype(np.float32)) for n, f in (("cosine", np.cos), ("sine", np.sin)))
    terms = [(even, cosine), (odd, sine), (even, sine), (odd, cosine)]
    products = [made.node("Mul", list(term), f"{name}_product_{k}") for k, term in enumerate(terms)]
    turned = [
        made.node("Sub", products[:2], f"{name}_turned_even"),
        made.node("Add", products[2:], f"{name}_turned_odd"),
    ]
    last = made.constant("last", [-1])
    columns = [made.node("Unsqueeze", [each, last], f"{each}_column") for each in turned]
    joined = made.node("Concat", columns, f"{name}_joined", axis=-1)
    return made.node("Reshape", [joined, made.constant("head_shape", [1, TOKENS, HEADS, SIZE])], f"{name}_turned")


def _model(made: _Model) -> onnx.ModelProto:
    graph = helper.make_graph(
        made.nodes,
        "attention",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [TOKENS, 3 * WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [TOKENS, WIDTH])],
        [numpy_helper.from_array(value, name) for name, value in made.constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sample() -> NDArray[np.float32]:
    return np.random.default_rng(0).uniform(-4, 4, (TOKENS, 3 * WIDTH)).astype(np.float32)
