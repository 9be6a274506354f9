"""First-fit allocation of a memory in aligned blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

ALIGNMENT = 64

Key = TypeVar("Key")


def align(size: int) -> int:
    """Bytes of the aligned blocks that ``size`` bytes take, at least one."""
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


def usable(size: int) -> int:
    """Bytes of a memory that whole aligned blocks can take."""
    return size // ALIGNMENT * ALIGNMENT


class FirstFit:
    """Free runs of a memory."""

    def __init__(self, capacity: int) -> None:
        self.free, self.peak = [(0, usable(capacity))], 0

    def take(self, sizes: Mapping[Key, int]) -> dict[Key, int] | None:
        """The lowest addresses for all of these or, where one does not fit, None and nothing is taken."""
        found: dict[Key, int] = {}
        before = self.free
        for key, size in sizes.items():
            address = self._take_one(align(size))
            if address is None:
                self.free = before
                return None
            found[key] = address
        self.peak = max([self.peak, *(found[key] + align(sizes[key]) for key in found)])
        return found

    def _take_one(self, need: int) -> int | None:
        for position, (start, length) in enumerate(self.free):
            if length >= need:
                rest = [(start + need, length - need)] if length > need else []
                self.free = [*self.free[:position], *rest, *self.free[position + 1 :]]
                return start
        return None

    def give(self, start: int, size: int) -> None:
        merged: list[tuple[int, int]] = []
        for begin, length in sorted([*self.free, (start, align(size))]):
            if merged and sum(merged[-1]) == begin:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((begin, length))
        self.free = merged
