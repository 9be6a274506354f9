"""What is refused: each message names the node or the file, the limit, what was found and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from custom_cases import (
    BELOW,
    SQUARE,
    call_node,
    changed,
    model_of,
    square_kernel,
    square_reference,
    square_types,
    typed,
)

from epu.compiler import compile_graph
from epu.custom_compose import Composer
from epu.custom_load import load_custom_ops
from epu.custom_ops import CustomCall, CustomKernel, CustomOp, CustomOutput
from epu.errors import ConfigError, UserError
from epu.graph import Quantized
from epu.hw_config import HWConfig

RANGES = {"x": (-4.0, 4.0), "y": (-1.0, 18.0)}


def model(op: str = "square", **attributes: Any) -> onnx.ModelProto:
    bias = {"bias": np.zeros(8, np.float32)}
    return model_of([call_node(op, ["x", "bias"], "y", **attributes)], (4, 8), bias)


def build(**fields: Any) -> None:
    compile_graph(typed(model(), RANGES, changed(SQUARE, **fields)), HWConfig(product="QC-N").machine)


def kernel_with(**fields: Any) -> Callable[[CustomCall], CustomKernel]:
    return lambda call: replace(square_kernel(call), **fields)


def failing(call: CustomCall, *_: Any) -> Any:
    raise KeyError("scale")


def wrong_kernel(call: CustomCall) -> CustomKernel:
    given = square_kernel(call)
    return replace(given, constants={"B": given.constants["B"] + 1})


KERNELS = [
    (
        wrong_kernel,
        r"golden must equal the reference \(exact rounding\), found 32 of 32 elements that differ, at \(0, 0\)",
    ),
    (failing, "kernel of the custom operator must not fail, found KeyError: 'scale'"),
    (lambda call: square_kernel(call).function, "kernel must return a CustomKernel, found PrimFunc. Wrap it"),
    (kernel_with(function=3), "function must be a PrimFunc or a Kernel, found int"),
    (kernel_with(scalars={}), r"parameters \['B', 'X', 'Y', 'shift'\] must be operands, .* found \['B', 'X', 'Y'\]"),
    (kernel_with(operands={"X": 2}), "operands must name one of 2 inputs, found 2 for 'X'"),
    (kernel_with(operands={}), r"one array parameter must be left as output.* found outputs \['X', 'Y'\]"),
    (
        kernel_with(constants={"B": np.zeros(7, np.int32)}),
        "parameter 'B' must hold 7 elements of int32, found 8 of int32",
    ),
    (kernel_with(constants={"B": np.zeros(8)}), "parameter 'B' must hold 8 elements of float64, found 8 of int32"),
]


@pytest.mark.parametrize(("kernel", "message"), KERNELS)
def test_kernels_that_do_not_fit(kernel: Any, message: str) -> None:
    with pytest.raises(UserError, match=r"ONNX node 'custom' \(square\): .*" + message):
        build(kernel=kernel)


def read(body: Callable[[Any, Any, Any], Any]) -> Callable[[CustomCall], CustomKernel]:
    """A kernel of one stage, ``body(x, m, n)``."""

    def kernel(call: CustomCall) -> CustomKernel:
        from epu.tir_schedules.tvm_api import te

        x = te.placeholder((4, 8), "int32", name="X")
        y = te.compute((4, 8), lambda m, n: body(x, m, n), name="Y")
        return CustomKernel(te.create_prim_func([x, y]), {"X": 0})

    return kernel


def column_sums(call: CustomCall) -> CustomKernel:
    from epu.tir_schedules.tvm_api import te

    x, k = te.placeholder((4, 8), "int32", name="X"), te.reduce_axis((0, 4), "k")
    total = te.compute((8,), lambda n: te.sum(x[k, n], axis=k), name="total")
    y = te.compute((4, 8), lambda m, n: x[m, n] - total[n], name="Y")
    return CustomKernel(te.create_prim_func([x, y]), {"X": 0})


def first_of_each_row(call: CustomCall) -> CustomKernel:
    """A family's kernel whose body reads another element than its own."""
    from epu.tir_schedules.rowwise import RowStages

    stages = RowStages(4, 8)
    x = stages.array("X", "input", (4, 8), ("m", "n"), "int32")
    stages.each("Y", lambda m, n: x[m, n] - x[m, 0])
    return CustomKernel(stages.kernel("mine", ("mine",), (), share=1), {"X": 0})


UNSCHEDULABLE = [
    (
        read(lambda x, m, n: x[m, 7 - n]),
        r"index 'X' by its loop variables, constants or, in a table, a value; found 7 - v_n",
    ),
    (read(lambda x, m, n: x[m, n] - x[m, 0]), "dimension 1 of 'X' must be indexed by loop variables alone, .* found 0"),
    (read(lambda x, m, n: x[n // 2, n] + x[m, n]), "index 'X' by its loop variables"),
    (read(lambda x, m, n: x[m, n] // 3), "the array must be able to run the kernel, found ValueError: .* FloorDiv"),
    (
        read(lambda x, m, n: (x[m, n].astype("float32") * 0.5).astype("int32")),
        "must be able to run the kernel, found KeyError",
    ),
    (
        read(lambda x, m, n: x[m, n].astype("float32")),
        "buffers must be of int8, uint8, int32, int64, found 'Y' of float32",
    ),
    (column_sums, "must work on rows: .* found 2 axes, 1 of them reduced"),
    (
        first_of_each_row,
        "found ValueError: buffer X.* is not where a reader expects it: dimension 1 is spread over col",
    ),
]


@pytest.mark.parametrize(("kernel", "message"), UNSCHEDULABLE)
def test_kernels_that_the_array_cannot_run(kernel: Any, message: str) -> None:
    def reference(call: CustomCall, inputs: Any) -> Any:
        from epu.tir_schedules import golden

        given = kernel(call)
        function = given.function
        if not hasattr(function, "stages"):
            from epu.tir_schedules.custom_kernel import script_kernel

            function = script_kernel("any", function, frozenset(), frozenset(given.operands))
        (output,) = golden.run(function, {"X": inputs[0].astype(np.int32)}).values()
        return output.reshape(4, 8)

    with pytest.raises(UserError, match=r"ONNX node 'custom' \(square\): .*" + message):
        build(kernel=kernel, reference=reference)


REFERENCES = [
    (lambda call, x: square_reference(call, x)[:2], r"the reference must return the shape \(4, 8\), found \(2, 8\)"),
    (lambda call, x: square_reference(call, x) * 1.0, "the reference must return raw integers, found float64"),
    (lambda call, x: x[0] + 2**40, r"the reference must stay within int32, found \("),
    (failing, "reference of the custom operator must not fail, found KeyError"),
]


@pytest.mark.parametrize(("reference", "message"), REFERENCES)
def test_references_that_do_not_fit(reference: Any, message: str) -> None:
    with pytest.raises(UserError, match=r"ONNX node 'custom' \(square\): " + message):
        build(reference=reference)


TYPES = [
    (lambda call: (4, 8), "types must return a CustomOutput of float32, int8, uint8, found"),
    (lambda call: CustomOutput((4, 8), "int64"), "types must return a CustomOutput of float32"),
    (lambda call: CustomOutput((4, 0)), r"a shape of positive integers, found \(4, 0\)"),
    (lambda call: CustomOutput((4, 8), "int8", Quantized("uint8", (1.0,), (0,))), "must be of int8, found uint8"),
    (failing, "types of the custom operator must not fail"),
]


@pytest.mark.parametrize(("types", "message"), TYPES)
def test_types_that_do_not_fit(types: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        typed(model(), RANGES, changed(SQUARE, types=types))


def test_an_unknown_name_says_which_are_near() -> None:
    with pytest.raises(
        UserError, match=r"node 'custom' .* registered custom operator, found 'sqare'. Did you mean 'square'"
    ):
        typed(model("sqare"), RANGES)
    with pytest.raises(UserError, match="found 'square'. None is registered. Pass its module"):
        typed(model(), RANGES, {})


def test_nodes_that_are_no_custom_operators() -> None:
    foreign = model()
    foreign.graph.node[0].domain = "other"
    foreign.opset_import.add(domain="other", version=1)
    with pytest.raises(UserError, match=r"must be of the domain com.quadric, found 'other'"):
        typed(foreign, RANGES)
    two = model()
    two.graph.node[0].output.append("z")
    with pytest.raises(UserError, match="a custom operator must have one output, found 2"):
        typed(two, RANGES)
    with pytest.raises(UserError, match="tensors must be texts 'body name=model name', found 'Mul'"):
        typed(model(tensors=["Mul"]), RANGES)


def test_a_float_output_needs_a_range() -> None:
    from onnx import helper

    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="dequantize"),
        call_node("below", ["d"], "y"),
    ]
    made = model_of(nodes, (4, 8), {"s": np.float32(1), "z": np.int8(0)})
    graph = typed(made, None, changed(BELOW, interval=None))
    with pytest.raises(UserError, match=r"tensor 'y': its range must be finite, found inf. Give calibrated ranges"):
        compile_graph(graph, HWConfig(product="QC-N").machine)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "must have one of kernel and compose, found neither"),
        ({"kernel": square_kernel}, "a kernel must have a reference, found none"),
        ({"kernel": square_kernel, "compose": lambda b, c: ""}, "found kernel and compose"),
        (
            {"compose": lambda b, c: "", "reference": square_reference},
            "a composition has what its operators have, found reference beside it",
        ),
    ],
)
def test_what_an_operator_must_have(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"custom operator 'op': .*{message}"):
        CustomOp("op", square_types, **fields)
    with pytest.raises(ConfigError, match="the name must be a text"):
        CustomOp("", square_types, square_reference, square_kernel)


# --- modules


def module_of(**values: Any) -> ModuleType:
    module = ModuleType("mine")
    vars(module).update(values)
    return module


def test_modules_names_and_files_are_loaded(tmp_path: Path) -> None:
    assert load_custom_ops(module_of(a=SQUARE, again=SQUARE)) == {"square": SQUARE}
    assert load_custom_ops("custom_cases").keys() >= {"square", "below", "mirror"}
    assert load_custom_ops("epu.models.wave_attention").keys() == {"waveAttention"}
    file = tmp_path / "mine.py"
    file.write_text("from custom_cases import SQUARE\n")
    assert load_custom_ops(file) == load_custom_ops(str(file)) == {"square": SQUARE}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "must be a module, its dotted name or the path of a .py file, found int"),
        ("no.such.module", "'no.such.module' cannot be imported: ModuleNotFoundError"),
        ("missing.py", "'missing.py' does not exist"),
        ("folder/kernels.hpp", "'folder/kernels.hpp' must be a Python file, found '.hpp'"),
        (module_of(), "'mine' must hold an operator, found none"),
        (module_of(a=SQUARE, b=replace(SQUARE, frac=None, macs=lambda call: 1)), "found two operators 'square'"),
    ],
)
def test_modules_that_are_refused(source: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_custom_ops(source)


def test_a_file_that_fails_says_where(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import epu\nnothing_here\n")
    with pytest.raises(UserError, match=r"broken.py' cannot be run: NameError: name 'nothing_here'"):
        load_custom_ops(file)


# --- compositions


def composed(compose: Callable[[Composer, CustomCall], str]) -> None:
    op = CustomOp("square", square_types, compose=compose)
    typed(model(), RANGES, {"square": op})


@pytest.mark.parametrize(
    ("compose", "message"),
    [
        (lambda b, c: b.node("Conv2", ["x"], (4, 8)), "operators of docs/supported_ops.md, found Conv2"),
        (lambda b, c: b.elementwise("Relu", "nobody"), "inputs or what it added, found 'nobody'"),
        (lambda b, c: "x", "must return the name of a tensor that it added, found 'x'"),
        (lambda b, c: b.transpose("x", (1, 0)), r"compose must make the shape \(4, 8\), found \(8, 4\)"),
        (lambda b, c: b.transpose("x", (1, 1)), r"perm must order the axes of \(4, 8\), found \(1, 1\)"),
        (lambda b, c: b.reshape("x", (4, 9)), r"must keep the elements of \(4, 8\), found \(4, 9\)"),
        (lambda b, c: b.matmul("x", "x"), r"operands of a product must fit, found \(\(4, 8\), \(4, 8\)\)"),
        (lambda b, c: b.elementwise("Add", "x", b.reshape("x", (8, 4))), "inputs of Add must broadcast"),
        (lambda b, c: b.quantize("x", Quantized("int8", (1.0,), (0,))), "compose must make Float"),
        (failing, "compose of the custom operator must not fail"),
    ],
)
def test_compositions_that_do_not_fit(compose: Any, message: str) -> None:
    with pytest.raises(UserError, match=r"ONNX node 'custom' \(square\): .*" + message):
        composed(compose)
