"""Small quantised ONNX models, and their answers: compiled as users do, and by ONNX Runtime without optimisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from epu import ChimeraJob, HWConfig
from epu.quantization.session import open_session

Array = NDArray[Any]
TYPES = {"int8": TensorProto.INT8, "float32": TensorProto.FLOAT}
CONTRIB = "com.microsoft"


@dataclass
class Net:
    """A graph under construction; ``quantity`` makes scale and zero point initializers of a name."""

    inputs: dict[str, tuple[str, Sequence[int]]]
    outputs: dict[str, tuple[str, Sequence[int]]]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)

    def constant(self, name: str, values: Any, dtype: Any = None) -> str:
        self.weights[name] = np.asarray(values, dtype)
        return name

    def quantity(self, name: str, scale: Any) -> tuple[str, str]:
        """Names of float32 scale and int8 zero point 0, of the shape of ``scale``."""
        scales = np.asarray(scale, np.float32)
        return self.constant(f"{name}_scale", scales), self.constant(f"{name}_zero", np.zeros(scales.shape, np.int8))

    def node(self, op: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs, [output], name=output + "_node", domain=domain, **attributes))

    def rename(self, output: str) -> str:
        """Give the last node's output, and so the node, another name."""
        self.nodes[-1].output[0], self.nodes[-1].name = output, output + "_node"
        return output

    def model(self) -> onnx.ModelProto:
        inputs, outputs = (
            [helper.make_tensor_value_info(name, TYPES[dtype], shape) for name, (dtype, shape) in each.items()]
            for each in (self.inputs, self.outputs)
        )
        tensors = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "case", inputs, outputs, tensors)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def job_of(
    model: onnx.ModelProto,
    folder: Path,
    rounding: str = "exact",
    hw: HWConfig | None = None,
    ranges: Path | None = None,
) -> ChimeraJob:
    """The model's job, compiled."""
    path = folder / "case.onnx"
    onnx.save(model, path)
    job = ChimeraJob(path, hw or HWConfig("QC-N"), ranges, rounding=rounding, run_directory=folder / "run")
    job.compile()
    return job


def iss(model: onnx.ModelProto, inputs: Mapping[str, Array], folder: Path, **options: Any) -> dict[str, Array]:
    return dict(job_of(model, folder, **options).run(inputs))


def ort(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    names = [output.name for output in model.graph.output]
    return dict(zip(names, open_session(model).run(names, dict(inputs))))
