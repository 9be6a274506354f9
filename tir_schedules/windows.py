"""Sizes of windows that slide over two dimensions: what convolutions and pools have in common."""

from __future__ import annotations


class Windows:
    """For a shape with ``height, width, kernel, strides, pads (top, left, bottom, right), dilations``."""

    height: int
    width: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width with the border."""
        return self.height + self.pads[0] + self.pads[2], self.width + self.pads[1] + self.pads[3]

    @property
    def out(self) -> tuple[int, int]:
        """Windows down and across (ONNX Conv, output shape)."""
        sizes = zip(self.padded, self.kernel, self.strides, self.dilations)
        return tuple((size - d * (k - 1) - 1) // s + 1 for size, k, s, d in sizes)  # type: ignore[return-value]
