"""How a convolution lies on the array: whole words of taps, and the cheaper of two mappings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epu.simulator.machine import Machine
from epu.tir_schedules.convolution import ConvShape, conv_cycles, conv_tiling

pytest.importorskip("tvm", reason="kernels are TIR")

QC_U = Machine.for_product("QC-U")
PLAIN = ConvShape(
    batch=1,
    groups=1,
    channels=3,
    filters=16,
    height=64,
    width=64,
    kernel=(3, 3),
    strides=(1, 1),
    pads=(1, 1, 1, 1),
    dilations=(1, 1),
    bias=True,
    per_channel=False,
    rounding="exact",
)


def test_a_row_of_three_taps_becomes_a_word_with_the_same_outputs_and_products() -> None:
    wide = PLAIN.in_words()
    assert (wide.kernel, wide.pads, wide.idle) == ((3, 4), (1, 1, 1, 2), 1)
    assert (wide.out, wide.macs) == (PLAIN.out, PLAIN.macs)


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": (1, 1)},
        {"kernel": (2, 2)},
        {"kernel": (4, 4)},
        {"dilations": (1, 2)},
        {"pads": (0, 0, 0, 0)},
        {"filters": 256},
        {"kernel": (5, 5)},
    ],
)
def test_idle_taps_only_where_they_pay(change: dict[str, object]) -> None:
    shape = replace(PLAIN, **change)  # type: ignore[arg-type]
    assert shape.in_words() == shape


def test_five_taps_of_a_channel_of_its_own_become_two_words() -> None:
    shape = replace(PLAIN, groups=8, channels=1, filters=1, kernel=(5, 5), pads=(2, 2, 2, 2))
    assert shape.in_words().kernel == (5, 8)


def test_few_filters_leave_the_columns_to_pixels_and_many_take_them() -> None:
    few, many = PLAIN.in_words(), replace(PLAIN, channels=512, filters=512, height=7, width=7)
    assert conv_tiling(few, QC_U, 64)["j"].col > 1
    assert conv_tiling(many, QC_U, 64)["f"].col == QC_U.cols


def test_the_estimate_ranks_by_what_crosses_the_port() -> None:
    wide = PLAIN.in_words()
    tiling = conv_tiling(wide, QC_U, 64)
    i, j = tiling["i"], tiling["j"]
    pixels = 64 * 64 // (i.row * j.row * i.col * j.col)  # of one PE
    words = pixels * 3 * 3 * i.row  # of patches, 3 channels of 3 rows of one word
    results = pixels * 16 * i.row
    assert words + results <= conv_cycles(wide, tiling, QC_U) <= 1.5 * (words + results)
