"""`epu.onnx_backend`: a sample of ONNX's own cases for each outcome, the interface, and what the model is turned into first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt, Runner

from epu import onnx_backend
from epu.errors import UnsupportedNode
from epu.onnx_fold import MASKED, finite_masks, fold_known, without_infinity_tests
from epu.onnx_promote import constant_inputs, prune
from epu.onnx_shapes import infer_shapes

ROOT = Path(__file__).resolve().parents[2]

PASSING = """
test_layer_normalization_4d_axis3
test_softmax_axis_1 test_clip_expanded test_attention_3d_attn_mask test_attention_4d_attn_mask_4d_causal_expanded
test_resize_upsample_scales_nearest
test_add_bcast test_gelu_default_1 test_softmax_axis_2 test_gemm_all_attributes
test_matmul_3d test_quantizelinear test_dequantizelinear test_reduce_mean_keepdims_random
test_slice test_transpose_default test_reshape_extended_dims test_concat_3d_axis_negative_2 test_clip_inbounds
test_averagepool_2d_pads_count_include_pad test_maxpool_2d_ceil_output_size_reduce_by_one
test_averagepool_2d_ceil_last_window_starts_on_pad test_identity test_attention_4d test_attention_4d_causal_expanded
test_rms_normalization_2d_axis1 test_gather_elements_1 test_scatter_elements_without_axis test_gathernd_example_float32
test_nllloss_NC test_where_example test_reversesequence_time test_compress_0
test_and_bcast3v1d test_argmax_keepdims_example_select_last_index test_convtranspose_autopad_same test_einsum_scalar
test_resize_downsample_scales_linear_antialias test_resize_tf_crop_and_resize test_reduce_log_sum_exp_keepdims_example
test_cumsum_2d_axis_1 test_pow_bcast_array test_basic_conv_with_padding
test_spacetodepth_crd_mode_example test_sum_example test_mean_two_inputs test_max_example
""".split()
FOLDED = "test_shape test_size test_constant test_constantofshape_float_ones test_slice_start_out_of_bounds".split()
REFUSED = {
    "test_add_uint8": "the input must be float32, found uint8",
    "test_sin": "'Sin_y' (Sin): the importer must know the op",
    "test_identity_sequence": "must be a tensor, found sequence_type",
    "test_string_split_basic": "must hold numbers, found strings",
    "test_cast_FLOAT16_to_FLOAT8E4M3FN": "tensors must be bool, integers of 8 to 64 bits or floats, found float8_e4m3fn",
    "test_dequantizelinear_blocked": "there must be one scale, or one per channel, found shape",
    "test_dequantizelinear_int16": "codes must be int8, uint8 or int32, found int16",
    "test_training_dropout": "training_mode must be false, found True",
    "test_reduce_max_bool_inputs": "the input is float or quantized, found bool",
    "test_resize_downsample_scales_linear_align_corners": "must be whole where corners are aligned, found [1.2, 2.4]",
    "test_scatternd_add": "the reduction must be none, found add",
    "test_reduce_sum_empty_set": "found [2, 0, 4]",
}


def data_sets(case: TestCase) -> list[tuple[list[Any], list[Any]]]:
    return [(list(map(_array, given)), list(map(_array, wanted))) for given, wanted in case.data_sets or []]


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def answers(case: TestCase) -> onnx_backend.EpuRep:
    """Run a case and compare as ONNX's runner does. A refusal, to pytest a skipped test, is a failure here."""
    prepared = onnx_backend.prepare(case.model)
    for inputs, expected in data_sets(case):
        try:
            found = prepared.run(inputs)
        except onnx_backend.Refused as error:
            pytest.fail(str(error))
        Runner.assert_similar_outputs(expected, found, case.rtol, case.atol)
    return prepared


def compiled(prepared: onnx_backend.EpuRep) -> Any:
    return prepared.last.compiled if prepared.last is not None else None


@pytest.mark.parametrize("name", PASSING)
def test_passes_on_the_iss(node_cases: dict[str, TestCase], name: str) -> None:
    assert compiled(answers(node_cases[name])) is not None


@pytest.mark.parametrize("name", FOLDED)
def test_needs_no_program(node_cases: dict[str, TestCase], name: str) -> None:
    assert compiled(answers(node_cases[name])) is None


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_a_reason(node_cases: dict[str, TestCase], name: str) -> None:
    case = node_cases[name]
    with pytest.raises(onnx_backend.Refused) as refusal:
        onnx_backend.prepare(case.model).run(data_sets(case)[0][0])
    assert REFUSED[name] in str(refusal.value)
    assert isinstance(refusal.value, UnsupportedNode)
    assert isinstance(refusal.value, BackendIsNotSupposedToImplementIt)


def relu_model(dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, dtype, ["n", 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_runs_again_with_other_shapes_and_wider_values() -> None:
    prepared = onnx_backend.prepare(relu_model())
    for array in (np.float32([[1, -1, 0.5, 0]]), np.float32([[1000, -1, 0.5, 0]]), np.ones((3, 4), np.float32)):
        np.testing.assert_allclose(prepared.run([array])[0], np.maximum(array, 0), rtol=1e-6, atol=1e-6)


def test_compiles_once_for_the_same_shapes_and_range() -> None:
    prepared = onnx_backend.prepare(relu_model())
    prepared.run([np.float32([[1, -1, 0.5, 0]])])
    first = compiled(prepared)
    prepared.run([np.float32([[0.25, -0.5, 0, 0]])])
    assert compiled(prepared) is first


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_other_reals_come_back_in_their_type(dtype: int) -> None:
    array = np.array([[1, -1, 0.5, 0]], helper.tensor_dtype_to_np_dtype(dtype))
    (found,) = onnx_backend.run_model(relu_model(dtype), [array])
    assert found.dtype == array.dtype
    assert found.tolist() == [[1, 0, 0.5, 0]]


def test_run_node_infers_the_output() -> None:
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])
    (found,) = onnx_backend.run_node(node, [np.float32([[1, 2, 3]])])
    assert found.tolist() == [[1], [2], [3]]


def test_inputs_by_name_and_their_number() -> None:
    prepared = onnx_backend.prepare(relu_model())
    assert prepared.run({"x": np.float32([[1, -1, 2, -2]])})[0].tolist() == [[1, 0, 2, 0]]
    with pytest.raises(onnx_backend.Refused, match=r"the model has 1 \(x\), found 2"):
        prepared.run([np.zeros(4), np.zeros(4)])


def test_infinity_is_refused() -> None:
    with pytest.raises(onnx_backend.Refused, match="finite values only, found NaN or infinity"):
        onnx_backend.run_model(relu_model(), [np.float32([[np.inf, 0, 0, 0]])])


def test_devices_and_compatibility(node_cases: dict[str, TestCase]) -> None:
    assert onnx_backend.supports_device("CPU:0")
    assert not onnx_backend.supports_device("CUDA")
    assert onnx_backend.is_compatible(relu_model())
    assert not onnx_backend.is_compatible(node_cases["test_string_split_basic"].model)


# --- what the model is turned into


def model_of(
    nodes: list[onnx.NodeProto], inputs: dict[str, list[int]], outputs: list[str], **constants: Any
) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, next(iter(inputs.values()))) for name in outputs]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", given, made, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_constant_operands_are_followed_to_the_inputs() -> None:
    nodes = [
        helper.make_node("Cast", ["shape"], ["s"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["x", "s"], ["y"]),
        helper.make_node("Shape", ["z"], ["zs"]),
        helper.make_node("Expand", ["y", "zs"], ["out"]),
    ]
    model = model_of(nodes, {"x": [4], "shape": [2], "z": [2, 2]}, ["out"])
    assert constant_inputs(model) == ["shape"]


def masked_model() -> onnx.ModelProto:
    """x + y, 0 in place of y where the logarithm of x is minus infinity."""
    nodes = [
        helper.make_node("Log", ["x"], ["log"]),
        helper.make_node("Equal", ["log", "low"], ["masked"]),
        helper.make_node("Where", ["masked", "zero", "y"], ["kept"]),
        helper.make_node("Add", ["x", "kept"], ["out"]),
    ]
    return model_of(nodes, {"x": [4], "y": [4]}, ["out"], low=np.float32(-np.inf), zero=np.float32(0))


def test_finite_data_are_not_compared_with_infinity() -> None:
    folded = prune(without_infinity_tests(infer_shapes(masked_model())), {"out"})
    assert [node.op_type for node in folded.graph.node] == ["Identity", "Add"]


def test_infinite_data_are_refused_where_only_a_comparison_reads_them() -> None:
    prepared = onnx_backend.prepare(masked_model())
    y = np.float32([5, 6, 7, 8])
    assert prepared.run([np.float32([1, 2, 3, 4]), y])[0].tolist() == [6, 8, 10, 12]
    with pytest.raises(onnx_backend.Refused, match="tensor 'log': fixed point has finite values only"):
        prepared.run([np.float32([1, 0, 3, 4]), y])


def test_data_is_never_promoted() -> None:
    nodes = [
        helper.make_node("Less", ["x", "low"], ["below"]),
        helper.make_node("Where", ["below", "zero", "x"], ["y"]),
        helper.make_node("Mul", ["w", "x"], ["wx"]),
        helper.make_node("Pow", ["y", "wx"], ["out"]),
    ]
    inputs = {"x": [4], "low": [4], "w": [4]}
    assert constant_inputs(model_of(nodes, inputs, ["out"], zero=np.float32(0))) == ["low", "w"]


def test_fold_takes_the_decided_branch_and_keeps_dequantised_weights() -> None:
    inner = helper.make_tensor_value_info("t", TensorProto.FLOAT, [2])
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "then", [], [inner])
    other = helper.make_graph([helper.make_node("Abs", ["x"], ["t"])], "else", [], [inner])
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Equal", ["s", "two"], ["is_two"]),
        helper.make_node("If", ["is_two"], ["y"], then_branch=then, else_branch=other),
        helper.make_node("DequantizeLinear", ["w", "scale"], ["dw"]),
        helper.make_node("Where", ["is_two", "y", "dw"], ["z"]),
        helper.make_node("Add", ["z", "dw"], ["out"]),
    ]
    constants = {"two": np.int64([2]), "w": np.int8([1, 2]), "scale": np.float32(0.5)}
    folded = fold_known(model_of(nodes, {"x": [2]}, ["out"], **constants))
    ops = [node.op_type for node in prune(folded, {"out"}).graph.node]
    assert sorted(ops) == ["Add", "DequantizeLinear", "Identity", "Identity", "Neg"]


@pytest.mark.parametrize(
    ("mask", "reader", "found"),
    [
        ([[0, -np.inf]], "Softmax", MASKED),
        ([[0, -np.inf]], "Exp", -np.inf),  # no softmax: infinity must be seen, and refused
        ([[0, 0], [-np.inf, -np.inf]], "Softmax", -np.inf),  # a row of nothing else is NaN
        ([[np.inf, -np.inf]], "Softmax", -np.inf),
    ],
)
def test_masks_of_a_softmax_become_finite(mask: list[list[float]], reader: str, found: float) -> None:
    nodes = [helper.make_node("Add", ["x", "mask"], ["a"]), helper.make_node(reader, ["a"], ["y"])]
    model = finite_masks(model_of(nodes, {"x": [2, 2]}, ["y"], mask=np.float32(mask)))
    assert numpy_helper.to_array(model.graph.initializer[0]).min() == found


@pytest.mark.slow
def test_the_whole_table_has_no_wrong_value_and_no_crash() -> None:
    command = [sys.executable, "tools/onnx_backend_table.py", "--only", "."]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
    bad = [line for line in result.stdout.splitlines() if line.startswith(("wrong", "crashed"))]
    assert bad == []
    assert result.returncode == 0
