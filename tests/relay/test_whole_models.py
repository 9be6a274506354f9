"""Whole quantised models keep every ONNX node; relay.build of them answers as ONNX Runtime does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from relay_models import Array
from relay_running import built_outputs, ort_outputs

from epu.graph import Graph
from epu.models.detr import detr_encoder, detr_inputs
from epu.quantize import quadric_quantize
from epu.relay_passes.import_onnx import import_onnx
from epu.relay_passes.partition import placement
from epu.relay_passes.to_graph import to_graph

SHARED = Path(__file__).resolve().parents[3] / "shared" / "models"
SMALL = {"d_model": 32, "sequence": 24}


def classifier(folder: Path, form: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    path = SHARED / "ppocr_cls.onnx"
    if not path.exists():
        pytest.skip("the shared models are not here")
    samples = np.load(SHARED / "ppocr_cls.inputs.npz")
    data = [{"x": samples[f"{index}/x"]} for index in range(2)]
    result = quadric_quantize(
        str(path), calibration_data=data, output_folder=folder, shapes={"x": (1, 3, 48, 192)}, format=form
    )
    return onnx.load(result.qmodel_path), {"x": samples["6/x"]}


def encoder(folder: Path, form: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    model = detr_encoder(layers=2, heads=4, ffn=64, **SMALL)
    data = [detr_inputs(seed, **SMALL) for seed in range(2)]
    result = quadric_quantize(model, calibration_data=data, output_folder=folder, format=form)
    return onnx.load(result.qmodel_path), detr_inputs(5, **SMALL)


def names_in(graph: Graph) -> set[str]:
    return {node.name for node in graph.nodes} | {name for node in graph.nodes for name, _, _ in node.covers}


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
@pytest.mark.parametrize("network", [classifier, encoder])
def test_every_onnx_node_is_in_the_typed_graph(tmp_path: Path, network: Any, form: str) -> None:
    model, _ = network(tmp_path, form)
    module, _, names = import_onnx(model)
    graph = to_graph(module, "model", names)
    assert names_in(graph) == {node.name for node in model.graph.node}
    if form == "qoperator":
        tensors = {name for node in model.graph.node for name in node.output}
        assert tensors <= set(graph.tensors)
        assert [node.name for node in graph.nodes] == [node.name for node in model.graph.node]
    assert {row.where for row in placement(module)} == {"EPU"}


def test_relay_build_of_the_encoder(tmp_path: Path) -> None:
    """The float inputs of the first layer norm have ranges from scales alone; rounding ties may move an int8 code."""
    model, inputs = encoder(tmp_path, "qoperator")
    (expected,) = ort_outputs(model, inputs)
    (found,) = built_outputs(import_onnx(model)[0], inputs, "epu")
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.01 * np.max(np.abs(expected))
