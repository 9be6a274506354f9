"""Dynamic shapes: refused with the way to fix them, fixed, and everything behind them inferred."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from small_models import conv_net, model_of, node, normal, shared_model, value

from epu.errors import UserError
from epu.onnx_shapes import static_shape, value_types
from epu.onnx_util import fix_shapes, load_model


def dynamic(*shape: int | str) -> onnx.ModelProto:
    """A Conv and a Reshape computed from the Shape of its result; value_info holds stale symbols."""
    weights = {"w": normal(0, 4, 3, 1, 1), "start": np.array([0]), "end": np.array([1]), "rest": np.array([-1])}
    nodes = [
        node("Conv", ["x", "w"], "conv"),
        node("Shape", ["conv"], "shape"),
        node("Slice", ["shape", "start", "end"], "batch"),
        node("Concat", ["batch", "rest"], "flat_shape", axis=0),
        node("Reshape", ["conv", "flat_shape"], "y"),
    ]
    model = model_of(nodes, [value("x", shape)], [value("y", ["N", "M"])], weights)
    model.graph.value_info.append(value("conv", ["N", 4, "H", "W"]))
    return model


def shape_in(model: onnx.ModelProto, name: str) -> tuple[int, ...] | None:
    return static_shape(value_types(model)[name])


def test_fixed_shapes_reach_every_tensor() -> None:
    fixed = fix_shapes(dynamic("N", 3, "H", "W"), {"x": (2, 3, 4, 5)})
    assert shape_in(fixed, "x") == (2, 3, 4, 5)
    assert shape_in(fixed, "conv") == (2, 4, 4, 5)
    assert shape_in(fixed, "y") == (2, 80)


def test_the_given_model_keeps_its_shapes() -> None:
    model = dynamic("N", 3, "H", "W")
    fix_shapes(model, {"x": (2, 3, 4, 5)})
    assert model == dynamic("N", 3, "H", "W")


def test_dynamic_dimension_is_refused_with_its_remedy() -> None:
    with pytest.raises(UserError) as caught:
        load_model(dynamic("N", 3, "H", 7))
    assert str(caught.value) == (
        "input 'x' has shape [N, 3, H, 7]: dimension 0 ('N') is dynamic, but each must be fixed. "
        'Fix them, for instance: --shape x=1,3,224,7 or shapes={"x": (1, 3, 224, 7)}.'
    )


def test_minus_one_is_dynamic() -> None:
    with pytest.raises(UserError, match=r"input 'x' has shape \[\?, 3, 4, 4\]: dimension 0"):
        load_model(dynamic(-1, 3, 4, 4))


def test_dynamic_model_loads_on_request() -> None:
    assert len(load_model(dynamic("N", 3, "H", "W"), allow_dynamic=True).graph.node) == 5


def test_input_without_a_shape() -> None:
    model = conv_net()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UserError, match="input 'x' has no shape. Fix it: --shape x=1,3,224,224"):
        load_model(model)
    assert shape_in(load_model(model, shapes={"x": (1, 3, 6, 6)}), "conv") == (1, 4, 6, 6)


def test_unknown_input() -> None:
    with pytest.raises(UserError, match="the model has no input 'X'. Known: 'x'"):
        fix_shapes(conv_net(), {"X": (1, 3, 8, 8)})


@pytest.mark.parametrize("shape", [(1, 3, 8), (1, 4, 8, 8), (0, 3, 8, 8), (-1, 3, 8, 8)])
def test_shape_that_does_not_fit(shape: Sequence[int]) -> None:
    with pytest.raises(UserError, match=r"shapes: input 'x' is declared \['N', 3, 8, 8\], found \["):
        fix_shapes(dynamic("N", 3, 8, 8), {"x": shape})


def test_one_of_two_inputs_stays_dynamic() -> None:
    add = node("Add", ["a", "b"], "y")
    model = model_of([add], [value("a", ["N"]), value("b", ["N"])], [value("y", ["N"])])
    with pytest.raises(UserError, match=r"input 'b' has shape \[N\]"):
        load_model(model, shapes={"a": (3,)})


def test_real_model_with_question_marks() -> None:
    path, _ = shared_model("ppocr_cls")
    with pytest.raises(UserError, match=r"input 'x' has shape \[\?, 3, \?, \?\]: dimension 0"):
        load_model(path)
    model = load_model(path, shapes={"x": (1, 3, 48, 192)})
    assert static_shape(model.graph.output[0]) == (1, 2)
