"""Each pass on graphs written by hand: what it rewrites, and what it must leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_graphs import INT8, graph, ops

from epu.errors import UnsupportedNode, UserError
from epu.fixed_formats import fraction_table
from epu.graph import Fixed, Float, Graph, Integer, Quantized
from epu.mac_counter import count_macs, mac_summary, total_macs
from epu.operators import OPERATORS
from epu.operators.layer_norm import ROLES
from epu.passes import (
    assign_fraction_bits,
    assign_ranges,
    check_limits,
    fold_constants,
    recognise_layer_norm,
    recognise_softmax,
    recognise_unary_tables,
    remove_identities,
)
from epu.reference import run_reference

ROW = (2, 3, 1)
LAYER_NORM = [
    "DequantizeLinear q -> x",
    "ReduceMean x -> mean",
    "Sub x mean -> centred",
    "Pow centred two -> square",
    "ReduceMean square -> variance",
    "Add variance eps -> variance_epsilon",
    "Sqrt variance_epsilon -> deviation",
    "Div centred deviation -> normalised",
    "Mul normalised gamma -> scaled",
    "Add beta scaled -> y",
    "QuantizeLinear y -> qy",
]


def layer_norm_graph(lines: list[str] = LAYER_NORM, outputs: tuple[str, ...] = ("qy",), **other: Any) -> Graph:
    tensors = dict.fromkeys(("mean", "variance", "variance_epsilon", "deviation"), ROW)
    constants = {"two": np.array(2, np.float32), "eps": np.float32([1e-5])}
    vectors = {"gamma": np.linspace(0.5, 1.5, 8, dtype=np.float32), "beta": np.linspace(-1, 1, 8, dtype=np.float32)}
    return graph(lines, {"q": INT8}, outputs, **{**tensors, **constants, **vectors, **other})


def typed(of: Graph, tranges: Any = None) -> Graph:
    return assign_fraction_bits(assign_ranges(of, tranges))


def random_codes(shape: tuple[int, ...] = (2, 3, 8)) -> Any:
    return np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)


# ---- identities and constants


def test_identities_go_and_outputs_keep_their_name() -> None:
    before = graph(["Identity x -> a", "Dropout a -> b", "Relu b -> c", "Identity c -> y"], {"x": Float()}, ["y"])
    after = remove_identities(before)
    assert ops(after) == ["Relu", "Identity"]
    assert after.nodes[0].inputs == ["x"]
    assert ops(before) == ["Identity", "Dropout", "Relu", "Identity"]


def test_constants_fold_through_moves_and_dequantise() -> None:
    raw = np.arange(-3, 3, dtype=np.int8).reshape(2, 3)
    lines = ["Transpose q -> qt", "DequantizeLinear qt -> w", "Mul w half -> h", "Add x h -> y"]
    before = graph(lines, {"x": Float()}, ["y"], q=raw, qt=(3, 2), w=(3, 2), h=(3, 2), half=np.float32([0.5]))
    after = fold_constants(before)
    assert ops(after) == ["Add"]
    assert before.tensors["h"].data is None
    np.testing.assert_array_equal(
        after.tensors["h"].data, raw.T.astype(np.float32) * np.float32(0.05) * np.float32(0.5)
    )


# ---- layer normalisation


def test_layer_norm_is_one_node_that_covers_nine() -> None:
    after = recognise_layer_norm(layer_norm_graph())
    assert ops(after) == ["DequantizeLinear", "LayerNormDecomposed", "QuantizeLinear"]
    node = after.nodes[1]
    assert (node.name, node.inputs, node.outputs) == ("n_y", ["x", "gamma", "beta"], ["y"])
    assert [node.attrs[role] for role in ROLES] == list(ROLES)
    assert node.attrs["epsilon"] == float(np.float32(1e-5))
    assert [op for _, op, _ in node.covers] == "ReduceMean Sub Pow ReduceMean Add Sqrt Div Mul Add".split()
    assert [outputs for _, _, outputs in node.covers] == [*((role,) for role in ROLES), ("y",)]


def test_layer_norm_with_a_product_for_the_square_and_swapped_operands() -> None:
    swaps = {
        "Pow centred two -> square": "Mul centred centred -> square",
        "Add variance eps -> variance_epsilon": "Add eps variance -> variance_epsilon",
        "Mul normalised gamma -> scaled": "Mul gamma normalised -> scaled",
        "Add beta scaled -> y": "Add scaled beta -> y",
    }
    after = recognise_layer_norm(layer_norm_graph([swaps.get(line, line) for line in LAYER_NORM]))
    assert "LayerNormDecomposed" in ops(after)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Sub x mean -> centred", "Sub mean x -> centred"),
        ("Div centred deviation -> normalised", "Div deviation centred -> normalised"),
        ("Div centred deviation -> normalised", "Div x deviation -> normalised"),
        ("Pow centred two -> square", "Pow centred eps -> square"),
        ("Add beta scaled -> y", "Add x scaled -> y"),
    ],
)
def test_another_structure_is_no_layer_norm(old: str, new: str) -> None:
    before = layer_norm_graph([new if line == old else line for line in LAYER_NORM])
    assert ops(recognise_layer_norm(before)) == ops(before)


def test_a_layer_norm_with_an_inner_graph_output_stays() -> None:
    before = layer_norm_graph(outputs=("qy", "variance"))
    assert ops(recognise_layer_norm(before)) == ops(before)


def test_a_mean_over_another_axis_is_no_layer_norm() -> None:
    before = layer_norm_graph()
    before.nodes[1].attrs["axes"] = (1,)
    assert ops(recognise_layer_norm(before)) == ops(before)


def test_every_tensor_of_a_layer_norm_is_observable_and_right() -> None:
    final = typed(recognise_layer_norm(layer_norm_graph()))
    raw = run_reference(final, {"q": random_codes()})
    x = decoded(final, raw, "x")
    exact = {"mean": x.mean(-1, keepdims=True)}
    exact["centred"] = x - exact["mean"]
    exact["square"] = exact["centred"] ** 2
    exact["variance"] = exact["square"].mean(-1, keepdims=True)
    exact["variance_epsilon"] = exact["variance"] + 1e-5
    exact["deviation"] = np.sqrt(exact["variance_epsilon"])
    exact["normalised"] = exact["centred"] / exact["deviation"]
    exact["scaled"] = exact["normalised"] * np.linspace(0.5, 1.5, 8, dtype=np.float32)
    exact["y"] = exact["scaled"] + np.linspace(-1, 1, 8, dtype=np.float32)
    for name, expected in exact.items():
        np.testing.assert_allclose(decoded(final, raw, name), expected, rtol=2.0**-22, atol=2.0**-22, err_msg=name)


def decoded(of: Graph, raw: Any, name: str) -> Any:
    return np.ldexp(raw[name].astype(float), -of.tensors[name].type.frac)  # type: ignore[union-attr]


# ---- softmax


SOFTMAX = ["DequantizeLinear q -> x", "Softmax x -> p", "QuantizeLinear p -> qp"]
PROBABILITY = Quantized("int8", (1 / 127,), (0,))


def test_softmax_between_int8_is_one_node() -> None:
    after = recognise_softmax(graph(SOFTMAX, {"q": INT8}, ["qp"], qp=PROBABILITY))
    (node,) = after.nodes
    assert (node.op, node.name, node.inputs, node.outputs) == ("SoftmaxInt8", "n_p", ["q"], ["qp"])
    assert [op for _, op, _ in node.covers] == ["DequantizeLinear", "Softmax", "QuantizeLinear"]
    assert (node.attrs["dequantized"], node.attrs["probabilities"]) == ("x", "p")


def test_probabilities_that_leave_the_graph_are_an_output_too() -> None:
    after = recognise_softmax(graph(SOFTMAX, {"q": INT8}, ["qp", "p"], qp=PROBABILITY))
    assert after.nodes[0].outputs == ["qp", "p"]
    read = recognise_softmax(graph([*SOFTMAX, "Relu p -> r"], {"q": INT8}, ["qp", "r"], qp=PROBABILITY))
    assert read.nodes[0].outputs == ["qp", "p"]


def test_a_last_softmax_needs_no_quantize() -> None:
    after = recognise_softmax(graph(SOFTMAX[:2], {"q": INT8}, ["p"]))
    assert after.nodes[0].outputs == ["p"]


def test_a_dequantised_tensor_with_other_readers_keeps_its_node() -> None:
    after = recognise_softmax(graph([*SOFTMAX, "Relu x -> r"], {"q": INT8}, ["qp", "r"], qp=PROBABILITY))
    assert ops(after) == ["DequantizeLinear", "SoftmaxInt8", "Relu"]
    assert after.nodes[1].attrs["dequantized"] == ""
    run_reference(typed(after), {"q": random_codes()})


@pytest.mark.parametrize("change", ["axis", "channels"])
def test_another_softmax_stays(change: str) -> None:
    before = graph(SOFTMAX, {"q": INT8}, ["qp"], qp=PROBABILITY)
    if change == "axis":
        before.nodes[1].attrs["axis"] = 1
    else:
        before.tensors["q"].type = Quantized("int8", (0.1,) * 8, (0,) * 8, 2)
    assert ops(recognise_softmax(before)) == ops(before)


@pytest.mark.parametrize("rounding", ["exact", "ort"])
def test_softmax_table_agrees_with_the_separate_nodes(rounding: str) -> None:
    before = graph(SOFTMAX, {"q": INT8}, ["qp"], qp=PROBABILITY)
    raw = {"q": random_codes()}
    final, separate = typed(recognise_softmax(before)), typed(before)
    found, apart = run_reference(final, raw, rounding), run_reference(separate, raw, rounding)
    np.testing.assert_array_equal(found["qp"], apart["qp"])
    assert np.abs(found["x"] - 2 * apart["x"].astype(int)).max() <= 1  # Softmax alone asks for a bit more room
    assert np.abs(found["p"].astype(int) - apart["p"]).max() <= 2**6


# ---- tables


def table_graph(lines: list[str], outputs: tuple[str, ...] = ("qy",), **tensors: Any) -> Graph:
    return graph(lines, {"q": INT8}, outputs, **{"qy": Quantized("uint8", (0.031,), (3,)), **tensors})


def test_a_chain_is_one_table() -> None:
    lines = ["DequantizeLinear q -> x", "Clip x -> c", "Div c six -> d", "QuantizeLinear d -> qy"]
    before = table_graph(lines, six=np.array(6, np.float32))
    after = recognise_unary_tables(before)
    (node,) = after.nodes
    assert (node.op, node.name, node.inputs, node.outputs) == ("QuantizedUnary", "n_qy", ["q"], ["qy"])
    assert [op for _, op, _ in node.covers] == ["DequantizeLinear", "Clip", "Div", "QuantizeLinear"]
    assert sorted(node.attrs["inner"]) == ["c", "d", "x"]
    codes = np.arange(-128, 128).astype(np.int8).reshape(2, 16, 8)
    exact = np.clip(codes * np.float64(np.float32(0.05)), 0, 6) / 6
    found = run_reference(typed(after), {"q": codes})
    np.testing.assert_array_equal(found["qy"], np.rint(exact / np.float64(np.float32(0.031))) + 3)
    bits = typed(after).tensors["d"].type.frac  # type: ignore[union-attr]
    np.testing.assert_allclose(np.ldexp(found["d"].astype(float), -bits), exact, atol=2.0**-29)


def test_a_variable_may_meet_itself() -> None:
    lines = ["DequantizeLinear q -> x", "Sigmoid x -> s", "Mul x s -> y", "QuantizeLinear y -> qy"]
    assert ops(recognise_unary_tables(table_graph(lines))) == ["QuantizedUnary"]


@pytest.mark.parametrize(
    ("lines", "outputs"),
    [
        (["DequantizeLinear q -> x", "Relu x -> r", "QuantizeLinear r -> qy"], ("qy", "r")),
        (["DequantizeLinear q -> x", "Relu x -> r", "QuantizeLinear r -> qy", "Relu r -> z"], ("qy", "z")),
        (["DequantizeLinear q -> x", "Add x vector -> r", "QuantizeLinear r -> qy"], ("qy",)),
        (["DequantizeLinear q -> x", "Transpose x -> r", "QuantizeLinear r -> qy"], ("qy",)),
        (["DequantizeLinear q -> x", "Div six x -> r", "QuantizeLinear r -> qy"], ("qy",)),
        (["DequantizeLinear q -> x", "DequantizeLinear q2 -> z", "Add x z -> r", "QuantizeLinear r -> qy"], ("qy",)),
    ],
)
def test_other_regions_stay(lines: list[str], outputs: tuple[str, ...]) -> None:
    before = table_graph(lines, outputs, vector=np.ones(8, np.float32), six=np.float32([6]))
    assert ops(recognise_unary_tables(before)) == ops(before)


# ---- ranges and fraction bits


def test_ranges_come_from_scale_constants_tranges_and_operators() -> None:
    before = graph(["DequantizeLinear q -> x", "Mul x c -> y"], {"q": INT8}, ["y"], c=np.float32([-2]))
    static = assign_ranges(before).tensors
    assert (static["x"].range, static["x"].range_source) == ((-128 * 0.05, 127 * 0.05), "scale")
    assert (static["c"].range, static["c"].range_source) == ((-2.0, -2.0), "constant")
    assert (static["y"].range, static["y"].range_source) == ((-2 * 127 * 0.05, 256 * 0.05), "op")
    calibrated = assign_ranges(before, {"y": (-3, 4)}).tensors
    assert (calibrated["y"].range, calibrated["y"].range_source) == ((-3.0, 4.0), "tranges")
    assert before.tensors["y"].range is None


@pytest.mark.parametrize(
    ("op", "seen", "used", "source"),
    [
        ("Sigmoid", (0.0, 0.002), (0.0, 1.0), "op"),
        ("HardSigmoid", (0.4, 0.6), (0.0, 1.0), "op"),
        ("Tanh", (-1e-6, 1e-6), (-1.0, 1.0), "op"),
        ("Erf", (-0.99, 0.99), (-1.0, 1.0), "op"),
        ("Softmax", (0.001, 0.13), (0.0, 1.0), "op"),
        ("Softmax", (0.001, 0.12), (0.001, 0.12), "tranges"),
        ("Exp", (0.1, 0.9), (0.1, 0.9), "tranges"),
    ],
)
def test_a_bounded_function_takes_its_bound_where_that_is_affordable(
    op: str, seen: tuple[float, float], used: tuple[float, float], source: str
) -> None:
    before = graph(["DequantizeLinear q -> x", f"{op} x -> y"], {"q": INT8}, ["y"])
    y = assign_ranges(before, {"y": seen}).tensors["y"]
    assert (y.range, y.range_source) == (used, source)


def test_a_graph_input_takes_the_scale_of_its_quantize() -> None:
    before = graph(["QuantizeLinear x -> qx"], {"x": Float()}, ["qx"])
    assert assign_ranges(before).tensors["x"].range == (-128 * 0.05, 127 * 0.05)


def test_a_missing_range_names_tensor_node_and_remedy() -> None:
    before = graph(["Relu x -> y"], {"x": Float()}, ["y"])
    with pytest.raises(UserError, match=r"tensor 'x' \(input of the program, read by \['n_y'\]\).*Calibrate again"):
        assign_ranges(before)
    with pytest.raises(UserError, match=r"tensor 'y' \(made by ONNX node 'n_y' \(Relu\)\).*found none"):
        assign_ranges(before, {"x": (0, 1)})


def test_an_unbounded_quotient_is_refused() -> None:
    before = graph(["Div x z -> y"], {"x": Float(), "z": Float()}, ["y"])
    with pytest.raises(UserError, match=r"tensor 'y': its range must be finite, found inf"):
        assign_fraction_bits(replace(assign_ranges_of_inputs(before)))


def assign_ranges_of_inputs(of: Graph) -> Graph:
    for name in of.inputs:
        of.tensors[name] = replace(of.tensors[name], range=(-1.0, 1.0), range_source="op")
        of.tensors[name].type = Fixed(30)
    return assign_ranges(of)


@pytest.mark.parametrize(
    ("span", "bits"),
    [
        ((-1.0, 0.5), 29),
        ((-7.9, 7.9), 27),
        ((0.0, 0.007), 37),
        ((0.0, 0.0), 30),
        ((-5e9, 0.0), -3),
        ((0.0, 2.0**-60), 58),
    ],
)
def test_fraction_bits_of_a_calibrated_range_leave_one_bit(span: tuple[float, float], bits: int) -> None:
    final = typed(graph(["Relu x -> y"], {"x": Float()}, ["y"]), {"x": span, "y": (0, 1)})
    assert final.tensors["x"].type == Fixed(bits)
    assert final.tensors["y"].type == Fixed(bits)  # Relu keeps its input's


def test_constants_become_raw_integers() -> None:
    final = typed(
        graph(["Mul x c -> y"], {"x": Float()}, ["y"], c=np.float32([1.0, -0.25])), {"x": (0, 1), "y": (0, 1)}
    )
    assert final.tensors["c"].type == Fixed(30)
    np.testing.assert_array_equal(final.tensors["c"].data, np.int32([2**30, -(2**28)]))


def test_softmax_input_has_room_for_differences() -> None:
    final = typed(graph(["Softmax x -> p"], {"x": Float()}, ["p"]), {"x": (-1, 1), "p": (0, 1)})
    assert final.tensors["x"].type == Fixed(28)


def test_fraction_table_has_the_layer_norm_once() -> None:
    final = typed(recognise_layer_norm(layer_norm_graph()))
    lines = fraction_table(final).splitlines()
    assert lines[0].split() == "Source name Op Output 0 Range Output 0 Frac Bits Range from".split()
    assert [line.split()[:2] for line in lines[2:]] == [["n_x", "contrib.epu.dequantize"], ["n_y", "nn.layer_norm"]]
    assert "[-6.4f, 6.35f]" in lines[2]
    assert len(fraction_table(final, inner=True).splitlines()) == 2 + 1 + 9


# ---- limits and counts


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(UnsupportedNode, match=r"ONNX node 'n_y' \(Einsum\): .*supported_ops.md, found Einsum.*exclude"):
        check_limits(graph(["Einsum x -> y"], {"x": Float()}, ["y"]))


@pytest.mark.parametrize(
    ("line", "tensors", "message"),
    [
        ("Add x i -> y", {"i": Integer("int64")}, r"\(Add\): inputs and outputs are float, found int64 'i'"),
        (
            "Pow x c -> y",
            {"c": np.float32([5])},
            r"\(Pow\): the exponent is the constant 2, 3, 4 or 0.5, found \[5.0\]",
        ),
        ("Pow x z -> y", {}, r"found the variable 'z'"),
        ("Div x c -> y", {"c": np.float32([1, 0])}, r"a constant divisor is not 0, found 0 in 'c'"),
        ("QLinearAdd x q -> y", {}, r"\(QLinearAdd\): inputs are quantized int8 or uint8, found float 'x'"),
        ("QLinearAdd q q -> qy", {"qy": Quantized("int8", (1e12,), (0,))}, r"output scale lies between .*found 2\*\*"),
        ("LayerNormalization x z -> y", {}, r"gamma and beta are constants, found 'z'"),
    ],
)
def test_a_broken_limit_is_the_message(line: str, tensors: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedNode, match=message):
        check_limits(graph([line], {"x": Float()}, ["y"], **tensors))


def test_macs_are_counted_once() -> None:
    matmul = graph(["QLinearMatMul q qw -> qy"], {"q": INT8}, ["qy"], q=(4, 5, 6), qw=(6, 7), qy=(4, 5, 7))
    assert [(node.op, macs) for node, macs in count_macs(matmul)] == [("QLinearMatMul", 4 * 5 * 6 * 7)]
    conv = graph(["QLinearConv q qw -> qy"], {"q": INT8}, ["qy"], q=(1, 8, 5, 5), qw=(16, 2, 3, 3), qy=(1, 16, 3, 3))
    assert total_macs(conv) == 16 * 3 * 3 * 2 * 3 * 3
    assert mac_summary(conv)[4:6] == ["conv2d: 5,184 ops (2,592 MACs) - n_qy", "-" * 60]


def test_every_row_has_limits_that_pass_or_speak() -> None:
    for row in OPERATORS.values():
        assert all(not limit.sentence[0].isupper() and not limit.sentence.endswith(".") for limit in row.limits), (
            row.name
        )
