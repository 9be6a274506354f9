"""What the outputs of the real models mean: a class, a text, boxes, an embedding.

Each decoder takes the output array of one input and returns what a user of the model would act on, so that the ISS and
ONNX Runtime can be compared by it. Thresholds are those of the packages that the models come from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.ndimage
from numpy.typing import NDArray

Array = NDArray[Any]
Box = tuple[int, int, int, int]  # left, top, right, bottom, in pixels of the network's input

TEXT_PIXEL, TEXT_BOX, TEXT_SIDE = 0.3, 0.6, 3  # least probability of a pixel, mean of a box; least side, pixels
OBJECT_SCORE, OBJECT_OVERLAP = 0.1, 0.45  # least score of a box; most intersection over union of two
STRIDES = (8, 16, 32)  # of the three grids of a YOLOX head


def top_1(scores: Array) -> int:
    """The class of scores [1, classes]."""
    return int(np.argmax(scores))


def greedy_text(probabilities: Array, characters: list[str]) -> str:
    """The text of CTC probabilities [1, steps, 1 + characters + 1]: index 0 is the blank, the last one a space."""
    best = np.argmax(probabilities[0], axis=-1)
    kept = best[np.append(True, best[1:] != best[:-1]) & (best != 0)]
    return "".join([*characters, " "][index - 1] for index in kept)


def text_boxes(probability: Array) -> list[Box]:
    """Boxes around the connected regions of a text map [1, 1, height, width]."""
    page = probability[0, 0]
    regions = np.zeros(page.shape, np.int32)
    scipy.ndimage.label(page > TEXT_PIXEL, np.ones((3, 3)), regions)
    boxes = [box_of(*slices) for slices in scipy.ndimage.find_objects(regions)]
    means = [float(page[regions == number].mean()) for number in range(1, len(boxes) + 1)]
    return [box for box, mean in zip(boxes, means, strict=True) if mean >= TEXT_BOX and least_side(box) >= TEXT_SIDE]


def box_of(rows: slice, columns: slice) -> Box:
    return columns.start, rows.start, columns.stop, rows.stop


def least_side(box: Box) -> int:
    return min(box[2] - box[0], box[3] - box[1])


def object_boxes(head: Array, size: int) -> list[Box]:
    """Boxes, best first, of a YOLOX head [1, cells, 5 + classes] over a picture of ``size`` pixels square."""
    cells, strides = grid_cells(size)
    values = head[0].astype(np.float64)
    centre, extent = (values[:, :2] + cells) * strides, np.exp(values[:, 2:4]) * strides
    corners = np.concatenate([centre - extent / 2, centre + extent / 2], axis=1)
    scores = values[:, 4] * values[:, 5:].max(axis=1)
    likely = np.flatnonzero(scores > OBJECT_SCORE)
    order = likely[np.argsort(-scores[likely], kind="stable")]
    return [box_at(corners[index]) for index in without_overlaps(corners, order)]


def box_at(corners: Array) -> Box:
    left, top, right, bottom = np.rint(corners).astype(int).tolist()
    return left, top, right, bottom


def grid_cells(size: int) -> tuple[Array, Array]:
    """Column and row of each cell, and its stride [cells, 1]."""
    grids = [np.indices((size // stride,) * 2)[::-1].reshape(2, -1).T for stride in STRIDES]
    strides = [np.full((len(grid), 1), stride) for grid, stride in zip(grids, STRIDES, strict=True)]
    return np.concatenate(grids), np.concatenate(strides)


def without_overlaps(corners: Array, order: Array) -> list[int]:
    """Non-maximum suppression: the indices of ``order`` that do not overlap an earlier kept one."""
    kept: list[int] = []
    for index in order.tolist():
        if all(overlap(corners[index], corners[other]) <= OBJECT_OVERLAP for other in kept):
            kept.append(index)
    return kept


def overlap(a: Array, b: Array) -> float:
    """Intersection over union of two boxes (left, top, right, bottom)."""
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = float(np.prod(np.maximum(sides, 0)))
    return shared / (float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - shared)


def cosine(a: Array, b: Array) -> float:
    """Of the angle between two embeddings."""
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def listed(embedding: Array) -> list[float]:
    """The numbers themselves: equal where every bit is."""
    return [float(each) for each in embedding.ravel()]


def boxes_apart(found: list[Box], expected: list[Box]) -> str:
    """How far the farthest corner is from that of the nearest expected box."""
    if not found or len(found) != len(expected):
        return f"{len(found)} boxes, {len(expected)} expected"
    distances = np.abs(np.asarray(found)[:, np.newaxis] - np.asarray(expected)).max(axis=-1)
    return f"corners up to {max(distances.min(axis=0).max(), distances.min(axis=1).max())} pixels apart"


def texts_apart(found: str, expected: str) -> str:
    """Both texts."""
    return f"'{found}', expected '{expected}'"
