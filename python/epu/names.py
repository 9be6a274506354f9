"""Remedies for names that nobody knows."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LISTED = 8


def near(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the known names nearest to ``name``, or with the first few where none is near."""
    names = sorted(set(known))
    matches = get_close_matches(name, names, n=3, cutoff=0.6)
    if matches:
        return f"Did you mean {' or '.join(map(repr, matches))}?"
    shown = ", ".join(map(repr, names[:LISTED]))
    return f"Known: {shown}{', …' if len(names) > LISTED else ''}."
