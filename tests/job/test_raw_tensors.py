"""Arrays to raw integers and back, .npz and .bin files, and what each bad input is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epu.errors import UserError
from epu.raw_tensors import decode, encode, file_name, load_arrays, read_raw, save_arrays, write_raw
from epu.simulator.program import Buffer, Decode

FIXED = Buffer("src", "ext", 0, (3,), "i32", Decode("fx", frac=4))
INT8 = Buffer("q", "ext", 64, (2,), "i8", Decode("q", scale=(0.5,), zero_point=(1,)))
INDEX = Buffer("ids", "ext", 128, (2,), "i64", Decode("int"))


def test_reals_become_fixed_point_and_come_back_as_float32() -> None:
    raw = encode([FIXED], {"src": np.array([0.5, -1.0, 0.03125], np.float32)})
    assert raw["src"].dtype == np.int32
    np.testing.assert_array_equal(raw["src"], [8, -16, 0])  # half to even
    real = decode([FIXED], raw)
    assert real["src"].dtype == np.float32
    np.testing.assert_array_equal(real["src"], np.array([0.5, -1, 0], np.float32))


def test_integers_of_the_buffer_pass_and_reals_are_quantised() -> None:
    np.testing.assert_array_equal(encode([INT8], {"q": np.array([5, -5], np.int8)})["q"], [5, -5])
    np.testing.assert_array_equal(encode([INT8], {"q": np.array([1.0, -1.0])})["q"], [3, -1])
    np.testing.assert_array_equal(decode([INT8], {"q": np.array([5, -5], np.int8)})["q"], [5, -5])
    assert encode([INDEX], {"ids": np.array([1, 2], np.int32)})["ids"].dtype == np.int64


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, r"'src' is missing\. Inputs: src \[3\]"),
        ({"src": np.zeros(3), "x": np.zeros(1)}, r"'x' is no input of the program\. Inputs: src \[3\]"),
        ({"src": np.zeros((1, 3))}, r"'src' must have shape \[3\], found \[1, 3\]"),
        ({"src": np.array([0, np.nan, 0])}, r"'src' holds NaN or infinity"),
        ({"src": np.array(["a", "b", "c"])}, r"'src' must hold numbers"),
    ],
)
def test_inputs_that_do_not_fit(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        encode([FIXED], arrays)


def test_npz_holds_any_tensor_name_and_repeats_its_bytes(tmp_path: Path) -> None:
    arrays = {"/encoder/Add_output_0": np.arange(3), "file": np.ones((), np.float32)}
    for name in ("a.npz", "b.npz"):
        save_arrays(tmp_path / name, arrays)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    loaded = load_arrays(tmp_path / "a.npz")
    assert list(loaded) == list(arrays)
    np.testing.assert_array_equal(loaded["/encoder/Add_output_0"], [0, 1, 2])


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04broken"])
def test_what_is_no_npz_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "in.npz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"in\.npz' is not an \.npz file"):
        load_arrays(path)
    with pytest.raises(UserError, match="does not exist"):
        load_arrays(tmp_path / "absent.npz")


def test_pickles_and_single_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", x=np.array([{}], object))
    np.save(tmp_path / "single.npy", np.zeros(3))
    for name in ("objects.npz", "single.npy"):
        with pytest.raises(UserError, match="is not an .npz file"):
            load_arrays(tmp_path / name)


def test_raw_files_are_named_by_role_or_by_tensor(tmp_path: Path) -> None:
    one = write_raw(tmp_path, "input", {"src": np.array([1, -2], np.int32)})
    assert [path.name for path in one] == ["input.bin"]
    assert one[0].read_bytes() == b"\x01\0\0\0\xfe\xff\xff\xff"
    two = write_raw(tmp_path, "input", {"src": np.zeros(1, np.int32), "/a/b:0": np.zeros(2, np.int8)})
    assert [path.name for path in two] == ["src.bin", "a_b_0.bin"]


@pytest.mark.parametrize(("tensor", "name"), [("../../etc/x", "etc_x"), ("a b", "a_b"), ("/", "tensor")])
def test_file_names_stay_in_their_folder(tensor: str, name: str) -> None:
    assert file_name(tensor) == name


@pytest.mark.parametrize("buffers", [[FIXED], [FIXED, INT8, INDEX]])
def test_raw_files_are_read_as_they_were_written(buffers: list[Buffer], tmp_path: Path) -> None:
    arrays = {"src": np.array([1, -2, 3]), "q": np.array([5, -128]), "ids": np.array([1, -(2**40)])}
    types = {"src": np.int32, "q": np.int8, "ids": np.int64}
    raw = {each.name: arrays[each.name].astype(types[each.name]) for each in buffers}
    write_raw(tmp_path, "input", raw)
    found = read_raw(tmp_path, "input", buffers)
    assert [(name, value.dtype, value.tolist()) for name, value in found.items()] == [
        (name, value.dtype, value.tolist()) for name, value in raw.items()
    ]


@pytest.mark.parametrize(
    ("buffers", "name", "message"),
    [
        ([FIXED], "none.bin", "none.bin' cannot be read: No such file"),
        ([FIXED], "short.bin", r"must hold 12 bytes, i32 \[3\] of 'src', found 4\. Write the machine's integers"),
        ([FIXED, INT8], "short.bin", r"holds one tensor, found 2: src, q\. Give a folder"),
        ([FIXED, INT8], ".", "src.bin' cannot be read"),
    ],
)
def test_raw_files_that_do_not_fit(buffers: list[Buffer], name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "short.bin").write_bytes(bytes(4))
    with pytest.raises(UserError, match=message):
        read_raw(tmp_path / name, "input", buffers)
