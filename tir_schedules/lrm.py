"""First-fit allocation of a PE's local register memory while a kernel is emitted."""

from __future__ import annotations

from epu.simulator.errors import CapacityError

ALIGNMENT = 8


class LrmAllocator:
    """Free list over [0, capacity). Sizes are rounded up to 8 bytes."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.peak = capacity, 0
        self.free: list[tuple[int, int]] = [(0, capacity)]

    def take(self, size: int) -> int:
        """Address of ``size`` free bytes; CapacityError where there are none."""
        need = _round(size)
        for position, (start, length) in enumerate(self.free):
            if length >= need:
                self.free[position : position + 1] = [(start + need, length - need)] if length > need else []
                self.peak = max(self.peak, start + need)
                return start
        largest = max((length for _, length in self.free), default=0)
        raise CapacityError(
            f"LRM holds {self.capacity} bytes per PE; the tile needs {need} more and the largest free run is {largest}. "
            "Use a larger lrm_size."
        )

    def give(self, start: int, size: int) -> None:
        """Free what ``take`` gave."""
        merged: list[tuple[int, int]] = []
        for begin, length in sorted([*self.free, (start, _round(size))]):
            if merged and merged[-1][0] + merged[-1][1] == begin:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((begin, length))
        self.free = merged


def _round(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
