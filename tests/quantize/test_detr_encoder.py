"""The DETR encoder generator: names and sizes of the export it stands for, and values that behave."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from epu.errors import UserError
from epu.models import detr_encoder, detr_inputs
from epu.quantization.session import open_session

LAYER = """
self_attn/Add self_attn/q_proj/MatMul self_attn/q_proj/Add self_attn/Mul self_attn/k_proj/MatMul self_attn/k_proj/Add
self_attn/Reshape self_attn/Transpose self_attn/v_proj/MatMul self_attn/v_proj/Add self_attn/Reshape_1
self_attn/Transpose_1 self_attn/Reshape_2 self_attn/Transpose_2 self_attn/Reshape_3 self_attn/Reshape_4
self_attn/Reshape_5 self_attn/Transpose_3 self_attn/MatMul self_attn/Softmax self_attn/MatMul_1 self_attn/Reshape_6
self_attn/Transpose_4 self_attn/Reshape_7 self_attn/out_proj/MatMul self_attn/out_proj/Add Add
self_attn_layer_norm/ReduceMean self_attn_layer_norm/Sub self_attn_layer_norm/Pow self_attn_layer_norm/ReduceMean_1
self_attn_layer_norm/Add self_attn_layer_norm/Sqrt self_attn_layer_norm/Div self_attn_layer_norm/Mul
self_attn_layer_norm/Add_1 fc1/MatMul fc1/Add activation_fn/Relu fc2/MatMul fc2/Add Add_1 final_layer_norm/ReduceMean
final_layer_norm/Sub final_layer_norm/Pow final_layer_norm/ReduceMean_1 final_layer_norm/Add final_layer_norm/Sqrt
final_layer_norm/Div final_layer_norm/Mul final_layer_norm/Add_1
""".split()


def macs(model: onnx.ModelProto) -> int:
    types = {v.name: v for v in (*model.graph.value_info, *model.graph.output)}
    inner = {t.name: t.dims[0] for t in model.graph.initializer if len(t.dims) == 2}
    total = 0
    for each in model.graph.node:
        if each.op_type == "MatMul":
            shapes = [[d.dim_value for d in types[n].type.tensor_type.shape.dim] for n in each.output]
            depth = inner.get(each.input[1])
            if depth is None:
                depth = types[each.input[0]].type.tensor_type.shape.dim[-1].dim_value
            total += int(np.prod(shapes[0])) * depth
    return total


@pytest.fixture(scope="module")
def encoder() -> onnx.ModelProto:
    return detr_encoder()


def test_every_node_name(encoder: onnx.ModelProto) -> None:
    expected = [f"/encoder/layers.{index}/{name}" for index in range(6) for name in LAYER]
    assert [each.name for each in encoder.graph.node] == expected


def test_interface(encoder: onnx.ModelProto) -> None:
    onnx.checker.check_model(encoder, full_check=True)
    entries = [*encoder.graph.input, *encoder.graph.output]
    assert [entry.name for entry in entries] == ["src", "pos_embed", "encoder_memory"]
    shapes = [[d.dim_value for d in entry.type.tensor_type.shape.dim] for entry in entries]
    assert shapes == [[1, 360, 256]] * 3
    assert [(entry.domain, entry.version) for entry in encoder.opset_import] == [("", 13)]


def test_size_of_the_whole_encoder(encoder: onnx.ModelProto) -> None:
    assert round(macs(encoder) / 1e9, 3) == 3.229
    assert round(encoder.ByteSize() / 2**20, 2) == 30.18


def test_values_behave(encoder: onnx.ModelProto) -> None:
    names = [name for each in encoder.graph.node for name in each.output]
    values = dict(zip(names, open_session(encoder, names).run(names, detr_inputs(1)), strict=True))
    assert all(np.isfinite(array).all() for array in values.values())
    peaks = {name: abs(array).max() for name, array in values.items() if name.endswith(("/Add_1_output_0", "memory"))}
    assert all(1 < peak < 50 for peak in peaks.values()), peaks
    for index in range(6):  # attention neither uniform nor one place only, and tokens stay apart
        attention = values[f"/encoder/layers.{index}/self_attn/Softmax_output_0"]
        assert 5 / 360 < attention.max(axis=-1).mean() < 0.7
    assert values["encoder_memory"][0].std(axis=0).mean() > 0.2


def test_weights_have_heavy_tails_and_loud_channels() -> None:
    model = detr_encoder(layers=1)
    tensors = {t.name: onnx.numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer}
    weight = tensors["encoder.layers.0.fc1.weight"]
    kurtosis = ((weight - weight.mean()) ** 4).mean() / weight.var() ** 2
    assert 4 < kurtosis < 12  # a normal distribution has 3
    assert (tensors["encoder.layers.0.final_layer_norm.weight"] > 1.8).sum() == 6


def test_generation_is_seeded() -> None:
    small = {"layers": 1, "d_model": 8, "heads": 2, "ffn": 8, "sequence": 4}
    assert detr_encoder(**small) == detr_encoder(**small)
    assert detr_encoder(**small) != detr_encoder(**small, seed=1)
    assert not np.array_equal(detr_inputs(0)["src"], detr_inputs(1)["src"])
    assert np.array_equal(detr_inputs(0)["pos_embed"], detr_inputs(1)["pos_embed"])


def test_inputs_are_a_smooth_map() -> None:
    inputs = detr_inputs(0)
    assert {name: array.shape for name, array in inputs.items()} == {"src": (1, 360, 256), "pos_embed": (1, 360, 256)}
    assert all(array.dtype == np.float32 for array in inputs.values())
    image = inputs["src"].reshape(20, 18, 256)
    step = (image[:, 1:] - image[:, :-1]).std()
    assert step < image.std() * 1.2  # independent places would give sqrt(2)
    assert abs(inputs["pos_embed"]).max() <= 1
    assert inputs["pos_embed"][0, 0, 0] == pytest.approx(np.sin(2 * np.pi / 20), abs=1e-6)
    assert inputs["pos_embed"][0, 0, 129] == pytest.approx(np.cos(2 * np.pi / 18), abs=1e-6)


@pytest.mark.parametrize("arguments", [{"layers": 0}, {"heads": 7}, {"heads": 0}])
def test_sizes_that_do_not_fit(arguments: dict[str, int]) -> None:
    with pytest.raises(UserError, match="layers must be at least 1 and d_model a multiple of heads"):
        detr_encoder(**arguments)


def test_positions_need_four_channels() -> None:
    with pytest.raises(UserError, match="d_model must be a multiple of 4, found 10"):
        detr_inputs(d_model=10)
