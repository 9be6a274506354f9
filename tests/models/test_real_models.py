"""Real models, quantised both ways: the gates of validation, and the same answers as ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.decode_outputs import boxes_apart, cosine, greedy_text, object_boxes, text_boxes, top_1
from benchmarks.real_cases import BY_NAME, FORMS, HELD_OUT, MODELS, ROUNDINGS, Case, compiled_job, validated

LEAST_COSINE = 0.999  # of an embedding: one int8 element off by one in the middle of the network turns it by less
MAC_OPS = ("Conv", "MatMul", "Gemm")

pytest.importorskip("tvm", reason="the Relay door needs TVM")


def check(name: str, form: str, rounding: str, numbers: tuple[int, ...], folder: Path) -> None:
    """Quantise, compile, and validate one model on some of its held-out inputs."""
    case = Case(BY_NAME[name], form, MODELS, folder)
    if not case.source.exists():
        pytest.skip(f"{case.source} is absent: put the shared models beside the repository to run this test")
    job = compiled_job(case, rounding)
    for number in numbers:
        found = validated(job, case, number)
        assert found["failures"] == []
        assert found["summary"]["skipped"] == 0
        assert not [node for node in found["host_nodes"] if any(op in node["op"] for op in MAC_OPS)]
        check_answer(found["answers"], case.model.meaning)


def check_answer(found: dict[str, Any], meaning: str) -> None:
    """Equal to ORT's, unless ORT's float32 and integer kernels answer differently; embeddings point the same way."""
    if meaning == "embedding":
        assert found["cosine_to_ort"] > LEAST_COSINE
    elif found["ort"] == found["ort_int8"]:
        assert found["iss"] == found["ort"]


def test_a_small_model(tmp_path: Path) -> None:
    check("speech_embedding", "qoperator", "exact", HELD_OUT[:1], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", BY_NAME)
def test_every_model_form_and_rounding(name: str, form: str, rounding: str, tmp_path: Path) -> None:
    check(name, form, rounding, HELD_OUT, tmp_path)


# ---- what the answers mean


def test_text_drops_repeats_and_blanks() -> None:
    steps = [0, 1, 1, 0, 1, 2, 2, 3, 0]  # blank a a blank a b b space blank
    probabilities = np.eye(4, dtype=np.float32)[steps][np.newaxis]
    assert greedy_text(probabilities, ["a", "b"]) == "aab "


def test_text_boxes_join_diagonal_pixels_and_drop_what_is_small_or_faint() -> None:
    page = np.zeros((1, 1, 20, 30), np.float32)
    page[0, 0, 2:6, 3:9] = 0.9
    page[0, 0, 6:9, 9:12] = 0.9  # touches the first at a corner
    page[0, 0, 12:14, 3:9] = 0.9  # two pixels high
    page[0, 0, 12:18, 20:26] = 0.4  # likely pixels, unlikely text
    assert text_boxes(page) == [(3, 2, 12, 9)]
    assert text_boxes(np.zeros_like(page)) == []


def test_object_boxes_are_decoded_by_cell_and_freed_of_overlaps() -> None:
    cells = 8 * 8 + 4 * 4 + 2 * 2
    head = np.zeros((1, cells, 6), np.float32)
    cell = 8 * 8 + 4 + 2  # row 1, column 2 of the grid of stride 16
    head[0, cell] = [0.5, 0.25, np.log(2), np.log(1), 0.9, 0.8]
    head[0, cell + 1] = [-0.5, 0.25, np.log(2), np.log(1), 0.9, 0.7]  # the same place, less likely
    head[0, 0] = [4, 4, np.log(2), np.log(2), 0.5, 0.9]
    head[0, 5] = [0, 0, 0, 0, 0.3, 0.3]  # below the least score
    assert object_boxes(head, 64) == [(24, 12, 56, 28), (24, 24, 40, 40)]


def test_boxes_are_paired_with_the_nearest() -> None:
    found, expected = [(0, 0, 9, 9), (20, 20, 30, 30)], [(20, 21, 30, 33), (0, 0, 9, 8)]
    assert boxes_apart(found, expected) == "corners up to 3 pixels apart"
    assert boxes_apart([*found, (0, 0, 1, 1)], expected) == "3 boxes, 2 expected"
    assert boxes_apart([], []) == "0 boxes, 0 expected"


def test_class_and_cosine() -> None:
    assert top_1(np.float32([[0.1, 0.7, 0.2]])) == 1
    assert cosine(np.float32([[3, 4]]), np.float32([[4, 3]])) == pytest.approx(24 / 25)
    assert cosine(np.float32([1, 0]), np.float32([-2, 0])) == -1
