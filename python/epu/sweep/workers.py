"""Where points are measured: processes of this machine, or a Dask cluster. Both outlive a worker that dies."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from typing import Any

from epu.errors import UserError
from epu.sweep.points import Row

Call = tuple[Callable[..., Row], tuple[Any, ...]]
Result = Row | BaseException

ATTEMPTS = 3  # how often a point may see its worker die


def local(calls: Mapping[str, Call], jobs: int) -> Iterator[tuple[str, Result]]:
    """Results by key as they come, from ``jobs`` processes. Calls that a dead process took along are made again."""
    left, attempt = dict(calls), 0
    while left:
        attempt += 1
        # one at a time once workers have died, so that only the one that kills them is blamed
        for key, result in _pool(left, jobs if attempt < ATTEMPTS else 1, last=attempt >= ATTEMPTS):
            del left[key]
            yield key, result


def _pool(calls: Mapping[str, Call], jobs: int, last: bool) -> Iterator[tuple[str, Result]]:
    """What one pool finishes before it breaks; where ``last``, each call has a pool of its own and its death is a result."""
    if last:
        for key in list(calls):
            yield key, next(result for _, result in _submit({key: calls[key]}, 1))
        return
    for key, result in _submit(dict(calls), jobs):
        if not isinstance(result, BrokenProcessPool):
            yield key, result


def _submit(calls: Mapping[str, Call], jobs: int) -> Iterator[tuple[str, Result]]:
    with ProcessPoolExecutor(min(jobs, len(calls)), multiprocessing.get_context("spawn")) as pool:
        keys: dict[Future[Row], str] = {pool.submit(function, *args): key for key, (function, args) in calls.items()}
        try:
            for future in as_completed(keys):
                yield keys[future], _result(future)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _result(future: Any) -> Result:
    """The result or the exception of a finished future; only what ends the program is raised."""
    error = future.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    return error if error is not None else future.result()


def dask(calls: Mapping[str, Call], scheduler: str) -> Iterator[tuple[str, Result]]:
    """Results by key as they come, from the workers of the Dask scheduler at that address.

    A call whose worker dies is made again by Dask. Raises UserError where there is no scheduler.
    """
    try:
        distributed: Any = import_module("distributed")
    except ModuleNotFoundError as error:
        raise UserError(f"--scheduler needs Dask: {error}. Install 'epu[notebooks]' or leave it out.") from error
    try:
        client = distributed.Client(scheduler, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise UserError(
            f"--scheduler must be the address of a running Dask scheduler, found '{scheduler}' ({error}). "
            "Start one with `dask scheduler`, or leave it out."
        ) from error
    with client, client.as_current():
        keys = {client.submit(function, *args, pure=False): key for key, (function, args) in calls.items()}
        for future in distributed.as_completed(list(keys)):
            yield keys[future], _result(future)
