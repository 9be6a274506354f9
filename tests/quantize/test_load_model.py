"""Loading: what is not a healthy model is refused with one paragraph that names it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import external_data_helper, numpy_helper
from small_models import conv_net, model_of, node, value

from epu.errors import UserError
from epu.onnx_util import load_model, save_model


def saved(tmp_path: Path, model: onnx.ModelProto) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    return path


def saved_external(tmp_path: Path, location: str) -> Path:
    """A model whose weight 'w' says that it lies in ``location``."""
    model = conv_net()
    tensor = next(t for t in model.graph.initializer if t.name == "w")
    data = tensor.raw_data
    external_data_helper.set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    (tmp_path / "w.bin").write_bytes(data)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").write_bytes(data)
    return saved(folder, model)


def test_a_file_and_a_proto_load_alike(tmp_path: Path) -> None:
    path = saved(tmp_path, conv_net())
    assert load_model(path) == load_model(str(path)) == load_model(conv_net())


def test_shapes_are_inferred() -> None:
    names = {info.name: info for info in load_model(conv_net()).graph.value_info}
    assert [d.dim_value for d in names["relu"].type.tensor_type.shape.dim] == [1, 4, 8, 8]


def test_a_proto_is_not_changed() -> None:
    model = conv_net()
    before = model.SerializeToString()
    load_model(model)
    assert model.SerializeToString() == before


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.onnx' does not exist\. Give the path of an ONNX file\."):
        load_model(tmp_path / "nothing.onnx")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        load_model(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 an archive", b"<html>404</html>", bytes(100)])
def test_foreign_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"is not an ONNX file \\({len(content)} bytes\\)"):
        load_model(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_truncated_file(tmp_path: Path, share: float) -> None:
    data = conv_net().SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(UserError, match="is a truncated or damaged ONNX file"):
        load_model(path)


def test_model_without_nodes(tmp_path: Path) -> None:
    path = saved(tmp_path, model_of([], [value("x", [1])], [value("x", [1])], {}))
    with pytest.raises(UserError, match=r"m\.onnx' has no nodes: there is nothing to compute\."):
        load_model(path)


def test_weight_of_another_size_than_its_shape() -> None:
    model = conv_net()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    with pytest.raises(UserError, match=r"initializer 'w' of shape \[4, 3, 3, 3\] has data of another size"):
        load_model(model)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weight_that_is_not_finite(bad: float) -> None:
    model = conv_net()
    values = numpy_helper.to_array(model.graph.initializer[0]).copy()
    values.flat[7] = bad
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w"))
    with pytest.raises(UserError, match="initializer 'w' has 1 NaN or infinite of 108 values"):
        load_model(model)


def test_constant_node_that_is_not_finite() -> None:
    constant = node("Constant", [], "c", value=numpy_helper.from_array(np.array([np.nan], np.float32)))
    model = model_of([constant, node("Add", ["x", "c"], "y")], [value("x", [1])], [value("y", [1])])
    with pytest.raises(UserError, match="initializer 'c' has 1 NaN"):
        load_model(model)


def test_external_data_beside_the_model(tmp_path: Path) -> None:
    loaded = load_model(saved_external(tmp_path, "w.bin"))
    assert numpy_helper.to_array(loaded.graph.initializer[0]).tolist() == (
        numpy_helper.to_array(conv_net().graph.initializer[0]).tolist()
    )


def test_external_data_outside_the_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"initializer 'w' keeps its data in '\.\./w\.bin', outside the model's folder"):
        load_model(saved_external(tmp_path, "../w.bin"))


def test_external_data_with_absolute_path(tmp_path: Path) -> None:
    location = str(tmp_path / "model" / "w.bin")
    with pytest.raises(UserError, match="initializer 'w' keeps its data in '/.*', outside the model's folder"):
        load_model(saved_external(tmp_path, location))


def test_external_data_behind_a_link_that_leaves_the_folder(tmp_path: Path) -> None:
    path = saved_external(tmp_path, "link.bin")
    (path.parent / "link.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(UserError, match="'link.bin', outside the model's folder"):
        load_model(path)


def test_external_data_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="initializer 'w' keeps its data in 'gone.bin', which does not exist"):
        load_model(saved_external(tmp_path, "gone.bin"))


def test_external_data_that_is_truncated(tmp_path: Path) -> None:
    path = saved_external(tmp_path, "w.bin")
    (path.parent / "w.bin").write_bytes(b"1234")
    with pytest.raises(UserError, match="initializer 'w'"):
        load_model(path)


def test_external_data_of_a_model_in_memory(tmp_path: Path) -> None:
    model = onnx.load(saved_external(tmp_path, "w.bin"), load_external_data=False)
    with pytest.raises(UserError, match="a model in memory has no folder"):
        load_model(model)


def test_save_leaves_no_temporary_file(tmp_path: Path) -> None:
    save_model(conv_net(), tmp_path / "new" / "m.onnx")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["m.onnx"]
    assert onnx.load(tmp_path / "new" / "m.onnx") == conv_net()


def test_save_to_where_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written: .*Choose a folder you may write to"):
        save_model(conv_net(), tmp_path / "file" / "m.onnx")


def test_nodes_out_of_order_are_put_in_order() -> None:
    model, shuffled = conv_net(), conv_net()
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(reversed(model.graph.node))
    assert [node.name for node in load_model(shuffled).graph.node] == [node.name for node in model.graph.node]


def test_nodes_in_a_circle_are_named() -> None:
    model = model_of(
        [node("Add", ["x", "b"], "a"), node("Relu", ["a"], "b")], [value("x", [1, 4])], [value("b", [1, 4])]
    )
    with pytest.raises(
        UserError, match="ONNX node '.*' .Add.: what a node reads must not depend on it, found a circle"
    ):
        load_model(model)
