"""Empty Matplotlib figures that a notebook shows, with or without pyplot."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from epu.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def blank_figure(size: tuple[float, float]) -> Figure:
    """A figure of that size in inches. Raises UserError where Matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UserError(f"pictures need Matplotlib: {error}. Install it: pip install matplotlib.") from error
    figure = Figure(figsize=size, layout="constrained")
    figure._repr_png_ = lambda: _png(figure)  # type: ignore[attr-defined]  # IPython asks for it
    return figure


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()
