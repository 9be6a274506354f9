"""``epu.runtime.run``: what a built module calls to run one EPU program on the simulator.

It returns a status that the built module asserts on. A Python exception must not cross compiled code: TVM 0.16 then
streams a null text and every later error of that thread comes out empty.
"""

from __future__ import annotations

import base64
import threading
from typing import Any

import tvm

from epu.simulator.program import Program

NAME = "epu.runtime.run"

_programs: dict[str, Program] = {}  # by content: symbols repeat between models
_kept = threading.local()
_simulator = (
    threading.Lock()
)  # ``simulate`` keeps the last program's memories ready, and they are one thread's at a time


def last_error() -> Exception | None:
    """The exception of this thread's last run, for callers that run built modules without TVM's executors."""
    return getattr(_kept, "error", None)


def forget_error() -> None:
    _kept.error = None


def run(digest: str, blob: str, num_inputs: int, *arrays: Any) -> int:
    """Run the program in ``blob`` (base64) on the first ``num_inputs`` arrays, into the others; 0 where it went well."""
    try:
        _run(_program(digest, blob), arrays[:num_inputs], arrays[num_inputs:])
    except Exception as error:
        _kept.error = error
        return 1
    return 0


def _program(digest: str, blob: str) -> Program:
    if digest not in _programs:
        _programs[digest] = Program.from_bytes(base64.b64decode(blob))
    return _programs[digest]


def _run(program: Program, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
    from epu.raw_tensors import decode, encode
    from epu.simulator import simulate

    arrays = {buffer.name: array.numpy() for buffer, array in zip(program.inputs, inputs)}
    raw = encode(program.inputs, arrays)
    with _simulator:
        result = simulate(program, raw)
    values = decode(program.outputs, result.outputs)
    for buffer, array in zip(program.outputs, outputs):
        array.copyfrom(values[buffer.name])


tvm.register_func(NAME, run, override=True)
