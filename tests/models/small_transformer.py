"""A transformer of one layer with what sentence models have: word embedding, attention mask of -3.4e38, mean pooling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from epu.quantize import QuantizeResult, quadric_quantize

WORDS, LENGTH, WIDTH, HEADS = 50, 8, 16, 2
SAMPLES = 6

Arrays = dict[str, NDArray[Any]]


class _Model:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, name: str, values: Any, dtype: Any = np.float32) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        return self.constant(name, self.random.normal(0, 0.5, shape))

    def node(self, op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], f"/{name}", **attributes))
        return name

    def heads(self, x: str, name: str, order: list[int]) -> str:
        product = self.node("MatMul", [x, self.weight(f"{name}.weight", WIDTH, WIDTH)], name)
        split = self.node("Reshape", [product, "heads"], f"{name}.heads")
        return self.node("Transpose", [split], f"{name}.turned", perm=order)

    def mask(self) -> str:
        seen = self.node("Unsqueeze", ["mask", self.constant("axes", [1, 2], np.int64)], "mask.wide")
        real = self.node("Cast", [seen], "mask.real", to=TensorProto.FLOAT)
        hidden = self.node("Sub", [self.constant("one", 1.0), real], "hidden")
        return self.node("Mul", [hidden, self.constant("lowest", np.finfo(np.float32).min)], "mask.added")

    def norm(self, x: str, name: str) -> str:
        gain, shift = self.constant(f"{name}.gain", np.ones(WIDTH)), self.constant(f"{name}.shift", np.zeros(WIDTH))
        return self.node("LayerNormalization", [x, gain, shift], name, axis=-1)


def small_transformer(seed: int = 0) -> onnx.ModelProto:
    """Inputs ids and mask, int64 [1, 8]; outputs tokens [1, 8, 16] and sentence [1, 16], and an echo of the ids."""
    m = _Model(seed)
    m.constant("heads", [1, LENGTH, HEADS, WIDTH // HEADS], np.int64)
    words = m.node("Gather", [m.weight("words", WORDS, WIDTH), "ids"], "embedded")
    x = m.norm(m.node("Add", [words, m.weight("places", 1, LENGTH, WIDTH)], "placed"), "first")
    q, k, v = (
        m.heads(x, name, order) for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]))
    )
    scores = m.node("Div", [m.node("MatMul", [q, k], "qk"), m.constant("root", 2.8284271)], "scores")
    shares = m.node("Softmax", [m.node("Add", [scores, m.mask()], "masked")], "shares", axis=-1)
    mixed = m.node("Transpose", [m.node("MatMul", [shares, v], "mixed")], "mixed.turned", perm=[0, 2, 1, 3])
    flat = m.node("Reshape", [mixed, m.constant("flat", [1, LENGTH, WIDTH], np.int64)], "mixed.flat")
    m.norm(m.node("Add", [m.node("MatMul", [flat, m.weight("o", WIDTH, WIDTH)], "out"), x], "sum"), "tokens")
    column = m.node("Cast", [m.node("Unsqueeze", ["mask", m.constant("two", [2], np.int64)], "column")], "kept", to=1)
    total = m.node("ReduceSum", [m.node("Mul", ["tokens", column], "weighed"), m.constant("ones", [1], np.int64)], "total",
                   keepdims=0)  # fmt: skip
    count = m.node("ReduceSum", [column, "ones"], "count", keepdims=0)
    m.node("Div", [total, m.node("Clip", [count, m.constant("least", 1e-9)], "counted")], "sentence")
    m.node("Identity", ["ids"], "echo")
    return _finished(m)


def _finished(m: _Model) -> onnx.ModelProto:
    integer = [helper.make_tensor_value_info(name, TensorProto.INT64, [1, LENGTH]) for name in ("ids", "mask", "echo")]
    tokens = helper.make_tensor_value_info("tokens", TensorProto.FLOAT, [1, LENGTH, WIDTH])
    sentence = helper.make_tensor_value_info("sentence", TensorProto.FLOAT, [1, WIDTH])
    graph = helper.make_graph(m.nodes, "small", integer[:2], [tokens, sentence, integer[2]], m.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def sentences(count: int = SAMPLES, seed: int = 1) -> list[Arrays]:
    """Random words; the last ones are padding."""
    random = np.random.default_rng(seed)
    lengths = random.integers(3, LENGTH + 1, count)
    ids = random.integers(1, WORDS, (count, 1, LENGTH))
    masks = (np.arange(LENGTH) < lengths[:, None, None]).astype(np.int64)
    return [{"ids": i * m, "mask": m} for i, m in zip(ids, masks, strict=True)]


def quantised(folder: Path, layout: str = "qoperator") -> QuantizeResult:
    return quadric_quantize(
        small_transformer(),
        calibration_data=sentences(),
        output_folder=folder,
        format=layout,
        per_channel=layout == "qdq",
    )
