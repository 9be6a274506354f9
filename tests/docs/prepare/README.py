import shutil
from pathlib import Path

import numpy as np
import onnx
import small_encoder

from epu.models import detr_encoder
from epu.onnx_load import save_model

small_encoder.make()
model = onnx.load(small_encoder.MODEL)
small_encoder.validated("runs/before")
shutil.rmtree("out")

make, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
nodes = [make("Conv", ["x", "w"], ["c"], "conv", strides=[4, 4]), make("Relu", ["c"], ["y"], "relu")]
weights = onnx.numpy_helper.from_array(np.random.default_rng(0).standard_normal((8, 3, 4, 4)).astype(np.float32), "w")
sizes = [value("x", 1, ["n", 3, 48, 192])], [value("y", 1, ["n", 8, 12, 48])]
graph = onnx.helper.make_graph(nodes, "conv", *sizes, [weights])
opsets = [onnx.helper.make_opsetid("", 17)]
save_model(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), Path("model.onnx"))
x = np.random.default_rng(1).standard_normal((4, 1, 3, 48, 192)).astype(np.float32)
np.savez("samples.npz", x=x)
np.savez("in.npz", x=x[0])
save_model(detr_encoder(layers=1, heads=2, ffn=32, d_model=16, sequence=12), Path("encoder.onnx"))
