"""One BLAS thread while a program runs: tiles are small, and threads that wait for each other cost more than they bring."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

try:
    from threadpoolctl import ThreadpoolController
except ImportError:  # a bare NumPy and SciPy run programs too, with as many threads as their BLAS takes
    ThreadpoolController = None


@lru_cache(maxsize=1)
def _controller() -> Any:
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """A context in which NumPy's BLAS uses one thread, where threadpoolctl is installed."""
    if ThreadpoolController is None:
        return nullcontext()
    limited: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limited
