"""Strided layouts as plain numbers: bounds, merging of loops, disjointness. All strides are in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

from epu.simulator.operands import Grid


def bounds(addr: int, shape: Sequence[int], strides: Sequence[int], size: int) -> tuple[int, int]:
    """First byte touched and the one after the last."""
    low, high = addr, addr + size
    for count, stride in zip(shape, strides):
        reach = (count - 1) * stride
        if reach < 0:
            low += reach
        else:
            high += reach
    return low, high


def merge(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """The same elements in the same order with fewer loops: unit loops dropped, adjacent loops that chain fused.

    ``strides`` has one sequence per operand.
    """
    merged: list[int] = []
    steps: list[tuple[int, ...]] = []
    for count, step in zip(shape, zip(*strides)):
        if count == 1:
            continue
        if merged and all(outer == count * inner for outer, inner in zip(steps[-1], step)):
            merged[-1] *= count
            steps[-1] = step
        else:
            merged.append(count)
            steps.append(step)
    columns = [[step[i] for step in steps] for i in range(len(strides))]
    return merged, columns


def sort_loops(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """The loops reordered so that the first operand is walked from its largest to its smallest stride."""
    order = sorted(range(len(shape)), key=lambda i: -abs(strides[0][i]))
    return [shape[i] for i in order], [[each[i] for i in order] for each in strides]


def digit_strides(digits: Sequence[int], step: int) -> list[int]:
    """Stride of each mixed-radix digit (last fastest) of an index whose own stride is ``step``."""
    return [prod(digits[i + 1 :]) * step for i in range(len(digits))]


def pe_strides(grid: Grid, columns: int, pitch: int) -> list[int]:
    """Strides of the row digits, then of the column digits, in LRM storage of ``pitch`` bytes per PE."""
    return digit_strides(grid.rows, columns * pitch) + digit_strides(grid.cols, pitch)


def elements_disjoint(shape: Sequence[int], strides: Sequence[int], size: int) -> bool:
    """Whether no byte belongs to two elements."""
    loops = sorted((abs(stride), count) for count, stride in zip(shape, strides) if count > 1)
    extent = size
    for stride, count in loops:
        if stride < extent:
            return stride > 0 and _disjoint_by_count(shape, strides, size)
        extent += (count - 1) * stride
    return True


def _disjoint_by_count(shape: Sequence[int], strides: Sequence[int], size: int) -> bool:
    starts = np.sort(_starts(0, shape, strides))
    return bool((np.diff(starts) >= size).all())


def _starts(addr: int, shape: Iterable[int], strides: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    starts = np.array([addr], np.int64)
    for count, stride in zip(shape, strides):
        starts = (starts[:, None] + np.arange(count, dtype=np.int64) * stride).reshape(-1)
    return starts


Span = tuple[int, Sequence[int], Sequence[int], int]  # addr, shape, strides, size


def overlap(one: Span, other: Span) -> bool:
    """Whether two strided areas share a byte: by bounds, then by residues of a common pitch, then byte by byte."""
    low_one, high_one = bounds(*one)
    low_other, high_other = bounds(*other)
    low, high = max(low_one, low_other), min(high_one, high_other)
    if low >= high or _interleaved(one, other):
        return False
    taken = np.zeros(high - low, bool)
    taken[_bytes_between(one, low, high)] = True
    return bool(taken[_bytes_between(other, low, high)].any())


def _interleaved(one: Span, other: Span) -> bool:
    """Whether some pitch puts the two areas into different residue intervals."""
    pitches = {abs(stride) for span in (one, other) for count, stride in zip(span[1], span[2]) if count > 1 and stride}
    return any(_apart(_residue(one, pitch), _residue(other, pitch), pitch) for pitch in sorted(pitches, reverse=True))


def _residue(span: Span, pitch: int) -> tuple[int, int] | None:
    addr, shape, strides, size = span
    low, high = bounds(addr, shape, [stride if stride % pitch else 0 for stride in strides], size)
    return (low % pitch, high - low) if high - low <= pitch else None


def _apart(one: tuple[int, int] | None, other: tuple[int, int] | None, pitch: int) -> bool:
    if one is None or other is None:
        return False
    ahead = (other[0] - one[0]) % pitch
    return ahead >= one[1] and pitch - ahead >= other[1]


def _bytes_between(span: Span, low: int, high: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    addr, shape, strides, size = span
    every = (_starts(addr, shape, strides)[:, None] + np.arange(size)).reshape(-1)
    return every[(every >= low) & (every < high)] - low


def same_or_disjoint_elements(dst: Span, src: Span) -> bool:
    """Whether each element of ``src`` shares bytes at most with the same element of ``dst`` (equal shapes)."""
    if not overlap(dst, src):
        return True
    low, high = bounds(*dst)
    owner = np.full(high - low, -1, np.int64)
    starts = _starts(*dst[:3]) - low
    for byte in range(dst[3]):
        owner[starts + byte] = np.arange(len(starts))
    read = _starts(*src[:3]) - low
    for byte in range(src[3]):
        inside = (read + byte >= 0) & (read + byte < high - low)
        found = owner[(read + byte)[inside]]
        if ((found != -1) & (found != np.arange(len(read))[inside])).any():
            return False
    return True
