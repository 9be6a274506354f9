"""Quantising whole models: files, arithmetic, ranges, refusals, flat memory."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from small_models import conv_net, layer_norm_net, model_of, node, shared_model, value

from epu.errors import UserError
from epu.models import detr_encoder, detr_inputs
from epu.onnx_shapes import opset_of, static_shape, value_types
from epu.quantization.samples import synthetic_samples
from epu.quantization.session import open_session, tensor_types
from epu.quantize import QuantizeResult, compute_tensor_ranges, quadric_quantize
from epu.ranges import load_ranges


def small_detr() -> onnx.ModelProto:
    return detr_encoder(layers=1, d_model=32, heads=2, ffn=64, sequence=20)


def detr_samples(count: int) -> Iterator[dict[str, Any]]:
    return (detr_inputs(seed, d_model=32, sequence=20) for seed in range(count))


def count(model: onnx.ModelProto) -> Counter[str]:
    return Counter(each.op_type for each in model.graph.node)


def psnr(expected: Any, found: Any) -> float:
    return float(20 * np.log10(abs(expected).max() / np.sqrt(((expected - found) ** 2).mean())))


def run_all(model: onnx.ModelProto, sample: dict[str, Any]) -> dict[str, Any]:
    names = [name for each in model.graph.node for name in each.output]
    return dict(zip(names, open_session(model, names).run(names, sample), strict=True)) | sample


def check_ranges(result: QuantizeResult, samples: list[dict[str, Any]]) -> None:
    """One entry per float tensor, the exact extremes over the samples, in graph order."""
    model = onnx.load(result.qmodel_path)
    runs = [run_all(model, sample) for sample in samples]
    floats = [name for name, (type, _) in tensor_types(model).items() if type == "tensor(float)"]
    expected = {n: (min(float(r[n].min()) for r in runs), max(float(r[n].max()) for r in runs)) for n in floats}
    assert load_ranges(result.tranges_path) == expected


def test_detr_layer(tmp_path: Path) -> None:
    result = quadric_quantize(small_detr(), calibration_data=detr_samples(3), output_folder=tmp_path)
    model = onnx.load(result.qmodel_path)
    assert count(model) == Counter(
        QuantizeLinear=5, DequantizeLinear=4, QLinearMatMul=8, QLinearAdd=9, QLinearMul=1, Reshape=8, Transpose=5,
        Softmax=1, Relu=1, ReduceMean=4, Sub=2, Pow=2, Add=4, Sqrt=2, Div=2, Mul=2,
    )  # fmt: skip
    names = {each.name for each in model.graph.node}
    path = "/encoder/layers.0"
    assert {
        "src_QuantizeLinear",
        f"{path}/self_attn/MatMul_quant",
        f"{path}/self_attn/MatMul_output_0_DequantizeLinear",
        f"{path}/self_attn/Softmax",
        f"{path}/Add_output_0_DequantizeLinear",
        f"{path}/self_attn_layer_norm/Add_1_output_0_QuantizeLinear",
        f"{path}/fc1/MatMul_quant",
        f"{path}/activation_fn/Relu",
    } <= names
    check_ranges(result, list(detr_samples(3)))
    fresh = detr_inputs(9, d_model=32, sequence=20)
    expected, found = (open_session(onnx.load(p)).run(None, fresh)[0] for p in (result.float_path, result.qmodel_path))
    assert psnr(expected, found) > 25


def test_everything_is_symmetric_int8(tmp_path: Path) -> None:
    model = onnx.load(quadric_quantize(conv_net(), synthetic_input=True, output_folder=tmp_path).qmodel_path)
    zero_points = [t for t in model.graph.initializer if t.name.endswith("_zero_point")]
    assert zero_points
    assert all(not numpy_helper.to_array(t).any() for t in zero_points)
    assert {t.data_type for t in zero_points} <= {onnx.TensorProto.INT8, onnx.TensorProto.INT32}


def test_every_tensor_of_the_result_has_type_and_shape(tmp_path: Path) -> None:
    model = onnx.load(quadric_quantize(small_detr(), synthetic_input=True, output_folder=tmp_path).qmodel_path)
    types = value_types(model)
    made = [name for each in model.graph.node for name in each.output]
    assert all(static_shape(types[name]) is not None for name in made)
    onnx.checker.check_model(model)


def test_same_scales_as_quantize_static(tmp_path: Path) -> None:
    """Our streamed calibration gives what ONNX Runtime's gives on healthy data."""
    samples = synthetic_samples(conv_net(), 4, seed=1)
    result = quadric_quantize(conv_net(), calibration_data=samples, output_folder=tmp_path)

    class Reader:
        left = iter(samples)

        def get_next(self) -> Any:
            return next(self.left, None)

    quantize_static(
        result.float_path,
        tmp_path / "ort.onnx",
        Reader(),
        quant_format=QuantFormat.QOperator,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        nodes_to_exclude=["y"],
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True},
    )
    ours, theirs = (onnx.load(path) for path in (result.qmodel_path, tmp_path / "ort.onnx"))
    assert [each.SerializeToString() for each in ours.graph.node] == [n.SerializeToString() for n in theirs.graph.node]
    expected = {t.name: numpy_helper.to_array(t).tolist() for t in theirs.graph.initializer}
    assert {t.name: numpy_helper.to_array(t).tolist() for t in ours.graph.initializer} == expected


@pytest.mark.parametrize("opset", [11, 12, 13, 15, 17, 18, 19, 20, 21, 22])
def test_opset_is_kept(opset: int, tmp_path: Path) -> None:
    for build in (conv_net, layer_norm_net):
        result = quadric_quantize(build(opset), synthetic_input=True, output_folder=tmp_path)
        model = onnx.load(result.qmodel_path)
        assert opset_of(model) == opset
        assert count(model)["QLinearMatMul"] + count(model)["QLinearConv"] > 0
        assert {t.split("_")[0] for t in load_ranges(result.tranges_path)} >= {"x", "y"}


@pytest.mark.parametrize("opset", [23, 24, onnx.defs.onnx_opset_version()])
def test_newest_opset_is_kept_or_refused_with_a_remedy(opset: int, tmp_path: Path) -> None:
    refusal = ""
    try:
        quadric_quantize(conv_net(opset), synthetic_input=True, output_folder=tmp_path)
    except UserError as error:
        refusal = str(error)
    if refusal:
        assert re.search("refuses the model: .*update onnxruntime, export with an older opset", refusal)
        assert list(tmp_path.iterdir()) == []
    else:
        assert opset_of(onnx.load(tmp_path / "small_opt_sym_int8_q.onnx")) == opset


def test_layer_norm_group_stays_float(tmp_path: Path) -> None:
    result = quadric_quantize(layer_norm_net(), synthetic_input=True, output_folder=tmp_path)
    names = [each.name for each in onnx.load(result.qmodel_path).graph.node]
    assert [name for name in names if len(name) == 1] == list("abcdefghi")
    assert set("abcdefghi") <= load_ranges(result.tranges_path).keys()


def test_excluded_node_stays_float(tmp_path: Path) -> None:
    result = quadric_quantize(conv_net(), synthetic_input=True, output_folder=tmp_path, exclude=["Gemm"])
    assert count(onnx.load(result.qmodel_path))["Gemm"] == 1


def test_qdq_and_per_channel(tmp_path: Path) -> None:
    result = quadric_quantize(conv_net(), synthetic_input=True, output_folder=tmp_path, format="qdq", per_channel=True)
    model = onnx.load(result.qmodel_path)
    assert count(model)["Conv"] == 1
    scale = next(t for t in model.graph.initializer if t.name.startswith("w_scale") or t.name.endswith("W_scale")
                 or ("w" in t.name and t.name.endswith("_scale") and len(t.dims) == 1 and t.dims[0] == 4))  # fmt: skip
    assert list(scale.dims) == [4]


def test_per_channel_qoperator(tmp_path: Path) -> None:
    result = quadric_quantize(conv_net(), synthetic_input=True, output_folder=tmp_path, per_channel=True)
    model = onnx.load(result.qmodel_path)
    conv = next(each for each in model.graph.node if each.op_type == "QLinearConv")
    scale = next(t for t in model.graph.initializer if t.name == conv.input[4])
    assert list(scale.dims) == [4]


def test_names_of_the_files(tmp_path: Path) -> None:
    onnx.save(conv_net(), tmp_path / "net.v2.onnx")
    result = quadric_quantize(tmp_path / "net.v2.onnx", synthetic_input=True, output_folder=tmp_path / "out")
    assert result.qmodel_path == str(tmp_path / "out" / "net.v2_opt_sym_int8_q.onnx")
    assert result.tranges_path == result.qmodel_path + ".tranges"
    assert result.float_path == str(tmp_path / "out" / "net.v2_float32_opt.onnx")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == sorted(
        Path(path).name for path in (result.qmodel_path, result.tranges_path, result.float_path)
    )


def test_same_call_same_bytes(tmp_path: Path) -> None:
    runs = [quadric_quantize(conv_net(), synthetic_input=True, output_folder=tmp_path / n) for n in "ab"]
    for field in ("qmodel_path", "tranges_path", "float_path"):
        first, second = (Path(getattr(run, field)).read_bytes() for run in runs)
        assert first == second


def test_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger().handlers.copy()
    with caplog.at_level(logging.DEBUG, "epu"):
        quadric_quantize(layer_norm_net(), synthetic_input=True, output_folder=tmp_path)
    text = "\n".join(f"{r.levelname} {r.getMessage()}" for r in caplog.records if r.name == "epu.quantize")
    expected = [
        "INFO Generating synthetic data",
        "INFO Optimized model, opset 13",
        r"INFO Input shapes: \[1, 4, 16\]. Input names: x",
        r"INFO Output shapes: \[\[1, 4, 16\]\]. Output names: \['y'\]",
        "DEBUG Full exclusion set for quantization: .*'Softmax'",
        "INFO Quantization started...",
        "DEBUG excl_nodes .*'a', 'b'",
        "INFO Quantization done successfully!",
        "INFO Model still has FLOAT types",
        r"INFO ONNX full precision model size: 0.00 MB",
        "INFO Saved optimized model to .*_float32_opt.onnx",
        "INFO Saved quantized model to .*_opt_sym_int8_q.onnx",
        r"INFO Saved tensor ranges to .*\.tranges",
    ]
    assert re.search(".*\n(.*\n)*?".join(expected), text), text
    assert logging.getLogger().handlers == root


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give either calibration_data or synthetic_input=True, found neither"),
        ({"synthetic_input": True, "calibration_data": []}, "give either .* not both"),
        ({"calibration_data": []}, "calibration_data has no sample"),
        ({"synthetic_input": True, "format": "QDQ"}, "format must be one of qoperator, qdq, found 'QDQ'"),
        ({"synthetic_input": True, "num_images": 0}, "num_images must be at least 1, found 0"),
        ({"synthetic_input": True, "exclude": ["nope"]}, "exclude: 'nope' is neither"),
        ({"synthetic_input": True, "shapes": {"z": (1,)}}, "no input 'z'"),
    ],
)
def test_refusal_writes_nothing(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        quadric_quantize(conv_net(), output_folder=tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_failure_half_way_writes_nothing(tmp_path: Path) -> None:
    def stream() -> Iterator[dict[str, Any]]:
        yield synthetic_samples(conv_net(), 1, seed=0)[0]
        raise RuntimeError("the data set broke")

    with pytest.raises(RuntimeError, match="the data set broke"):
        quadric_quantize(conv_net(), calibration_data=stream(), output_folder=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_quantised_model_is_refused_and_its_ranges_can_be_computed(tmp_path: Path) -> None:
    result = quadric_quantize(conv_net(), synthetic_input=True, output_folder=tmp_path, seed=5)
    with pytest.raises(UserError, match=r"\(QuantizeLinear\): the model is quantised already.*compute_tensor_ranges"):
        quadric_quantize(result.qmodel_path, synthetic_input=True, output_folder=tmp_path)
    again = compute_tensor_ranges(result.qmodel_path, tmp_path / "t.tranges", synthetic_samples(conv_net(), 1, seed=5))
    assert again == load_ranges(tmp_path / "t.tranges") == load_ranges(result.tranges_path)


def test_float16_is_refused(tmp_path: Path) -> None:
    half = onnx.TensorProto.FLOAT16
    model = model_of([node("Relu", ["x"], "y")], [value("x", [2], half)], [value("y", [2], half)])
    with pytest.raises(UserError, match="tensor 'x' is float16; only float32 is quantised"):
        quadric_quantize(model, synthetic_input=True, output_folder=tmp_path)


def test_mask_of_float_minimum_gives_finite_scales(tmp_path: Path) -> None:
    lowest = float(np.finfo(np.float32).min)
    nodes = [
        node("MatMul", ["x", "w"], "s"),
        node("Mul", ["m", "lowest"], "mask"),
        node("Add", ["s", "mask"], "masked"),
        node("Softmax", ["masked"], "y"),
    ]
    weights = {"w": np.eye(4, dtype=np.float32), "lowest": np.float32(lowest)}
    model = model_of(nodes, [value("x", [4, 4]), value("m", [1, 4])], [value("y", [4, 4])], weights)
    sample = {"x": np.ones((4, 4), np.float32), "m": np.array([[0, 0, 0, 1]], np.float32)}
    result = quadric_quantize(model, calibration_data=[sample], output_folder=tmp_path)
    quantized = onnx.load(result.qmodel_path)
    assert count(quantized)["QLinearMatMul"] == 1
    (found,) = open_session(quantized).run(None, sample)
    np.testing.assert_allclose(found, np.tile([[1 / 3, 1 / 3, 1 / 3, 0]], (4, 1)), atol=1e-6)
    assert load_ranges(result.tranges_path)["mask"] == (lowest, 0.0)


def test_real_classifier(tmp_path: Path) -> None:
    path, samples = shared_model("ppocr_cls")
    stacked = tmp_path / "calibration.npz"
    np.savez(stacked, x=np.stack([sample["x"] for sample in samples[:6]]))
    result = quadric_quantize(
        path, calibration_data=str(stacked), output_folder=tmp_path, shapes={"x": (1, 3, 48, 192)}
    )
    model = onnx.load(result.qmodel_path)
    assert count(model) == Counter(
        QuantizeLinear=70, DequantizeLinear=61, QLinearConv=53, QLinearMul=27, QLinearAdd=26, QLinearMatMul=1,
        Clip=18, Div=18, Relu=15, GlobalAveragePool=10, HardSigmoid=9, MaxPool=1, Reshape=1, Softmax=1,
    )  # fmt: skip
    assert opset_of(model) == 11
    check_ranges(result, samples[:6])
    for sample in samples[6:]:
        expected, found = (
            open_session(onnx.load(p)).run(None, sample)[0] for p in (result.float_path, result.qmodel_path)
        )
        assert np.argmax(expected) == np.argmax(found)


MEMORY_SCRIPT = """
import resource, sys, tempfile
import numpy as np
from onnx import TensorProto, helper, numpy_helper
from epu.quantize import quadric_quantize

size = 128
weight = numpy_helper.from_array(np.ones((8, 3, 3, 3), np.float32), "w")
node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1, 1, 1, 1])
value = lambda name, channels: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, size, size])
graph = helper.make_graph([node], "g", [value("x", 3)], [value("y", 8)], [weight])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)

def peak(samples):
    random = np.random.default_rng(0)
    stream = ({"x": random.standard_normal((1, 3, size, size), np.float32)} for _ in range(samples))
    with tempfile.TemporaryDirectory() as folder:
        quadric_quantize(model, calibration_data=stream, output_folder=folder)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

print(peak(10), peak(200))
"""


def test_memory_does_not_grow_with_samples() -> None:
    """200 samples of 0.2 MB with outputs of 0.5 MB: kept, they would be 140 MB."""
    shown = subprocess.run([sys.executable, "-c", MEMORY_SCRIPT], check=True, capture_output=True, text=True).stdout
    few, many = map(int, shown.split())  # kilobytes
    assert many - few < 8 * 1024


def test_ranges_file_is_plain_json(tmp_path: Path) -> None:
    result = quadric_quantize(conv_net(), synthetic_input=True, output_folder=tmp_path)
    content = json.loads(Path(result.tranges_path).read_text())
    assert all(isinstance(name, str) and len(pair) == 2 for name, pair in content.items())


def test_duplicate_and_absent_node_names(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        node("Softmax", ["b"], "y", ""),
    ]
    model = model_of(nodes, [value("x", [4, 4])], [value("y", [4, 4])], {"w": np.eye(4, dtype=np.float32)})
    result = quadric_quantize(model, synthetic_input=True, output_folder=tmp_path)
    names = [each.name for each in onnx.load(result.qmodel_path).graph.node]
    assert len(set(names)) == len(names)
    assert "MatMul_1_quant" in names
