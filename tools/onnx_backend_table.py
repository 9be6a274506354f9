"""Runs ONNX's own backend test cases on `epu.onnx_backend`, each in this process, and writes docs/onnx_backend.md.

``--only PATTERN`` runs the cases whose name matches and prints them instead; ``--json FILE`` keeps every message.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from epu import onnx_backend

PAGE = Path(__file__).resolve().parent.parent / "docs" / "onnx_backend.md"
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
SECONDS = 240
PASSED, FOLDED, REFUSED, WRONG, CRASHED = "passed", "folded", "refused", "wrong", "crashed"
STATUSES = {
    PASSED: "computed by an EPU program on the ISS, equal to ONNX's answer within the test's tolerance",
    FOLDED: "depends on shapes, constants and promoted inputs alone, so the compiler computes it; no program, not passed",
    REFUSED: "not run, with a reason",
    WRONG: "another answer than ONNX's",
    CRASHED: "an error without a reason, or no answer within the time limit",
}


@dataclass(frozen=True)
class Outcome:
    """What became of one case."""

    kind: str
    case: str
    op: str
    status: str
    message: str = ""
    seconds: float = 0.0

    @property
    def reason(self) -> str:
        """The limit in the message, without the node's name and the value found."""
        text = re.sub(r"^(ONNX node|ONNX input|ONNX output|tensor|input|graph output) '[^']*'", "", self.message)
        text = re.sub(r"^ \((?:made by|graph input)[^)]*\)+", "", text)
        text = re.sub(r"^\s*(\([^)]*\))?:? ?", "", text)
        text = re.sub(r"initializer '[^']*' has \d+ (.*) of \d+ values", r"an initializer has \1 values", text)
        return re.sub(r"'[^']*'", "'…'", text.split(", found")[0].split(". ")[0]).strip()


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def all_cases() -> list[TestCase]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return [case for kind in KINDS for case in sorted(load_model_tests(kind=kind), key=lambda each: each.name)]


def model_and_data(case: TestCase) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    if case.model is not None:
        data = case.data_sets or []
        return case.model, [([_array(x) for x in inputs], [_array(y) for y in outputs]) for inputs, outputs in data]
    folder = Path(str(case.model_dir))
    model = onnx.load(folder / "model.onnx")
    sets = sorted(folder.glob("test_data_set_*"))
    return model, [
        (_stored(each, "input", model.graph.input), _stored(each, "output", model.graph.output)) for each in sets
    ]


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _stored(folder: Path, role: str, values: Iterable[onnx.ValueInfoProto]) -> list[Any]:
    """The tensors of a data set; other types stay None, the backend refuses the model anyway."""
    files = [folder / f"{role}_{index}.pb" for index, _ in enumerate(values)]
    kinds = [value.type.WhichOneof("value") for value in values]
    return [_load(file) if kind == "tensor_type" else None for file, kind in zip(files, kinds) if file.exists()]


def _load(file: Path) -> Any:
    return numpy_helper.to_array(onnx.TensorProto.FromString(file.read_bytes()))


def outcome_of(case: TestCase, kind: str) -> Outcome:
    start = time.perf_counter()
    model, data_sets = model_and_data(case)
    status, message = _attempt(case, model, data_sets)
    return Outcome(kind, case.name, _op(case, model), status, message, round(time.perf_counter() - start, 2))


def _attempt(case: TestCase, model: onnx.ModelProto, data_sets: list[tuple[list[Any], list[Any]]]) -> tuple[str, str]:
    try:
        with time_limit(SECONDS):
            prepared = onnx_backend.prepare(model)
            answers = [(expected, prepared.run(inputs)) for inputs, expected in data_sets]
    except onnx_backend.Refused as error:
        return REFUSED, str(error)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return CRASHED, f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {str(error)[:200]}"
    try:
        for expected, found in answers:
            Runner.assert_similar_outputs(expected, found, case.rtol, case.atol)
    except AssertionError as error:
        return WRONG, " ".join(str(error).split())[:200]
    on_epu = prepared.last is not None and prepared.last.compiled is not None
    return (PASSED if on_epu else FOLDED), ""


def _op(case: TestCase, model: onnx.ModelProto) -> str:
    """The operator a node case is about; of a function spelt out, the one in its name."""
    ops = list(dict.fromkeys(node.op_type for node in model.graph.node))
    return ops[0] if len(ops) == 1 else "…"


def page(outcomes: list[Outcome]) -> str:
    counts = Counter((each.kind, each.status) for each in outcomes)
    heads = ["cases", *STATUSES, "all"]
    rows = [[kind, *(str(counts[kind, each]) for each in STATUSES)] for kind in KINDS]
    rows = [[*row, str(sum(map(int, row[1:])))] for row in rows]
    total = ["**all**", *(str(sum(int(row[column]) for row in rows)) for column in range(1, len(heads)))]
    reasons = Counter(each.reason for each in outcomes if each.status == REFUSED)
    cases = [[f"`{each.case}`", each.status, _note(each)] for each in outcomes]
    return "\n".join(
        [
            "# ONNX's backend test cases on the EPU\n",
            "<!-- Written by `python tools/onnx_backend_table.py`; edit the code. -->\n",
            f"The cases that onnx {onnx.__version__} ships, run by `epu.onnx_backend` on the ISS of a default `HWConfig`, with "
            "the tolerances of ONNX's own runner (rtol 1e-3, atol 1e-7 unless a case says otherwise). Inputs that an operator "
            "needs as constants (shapes, axes, scales, weights, masks of a Where) are promoted to initializers; an input that is "
            "data anywhere never is.\n",
            *(f"- **{name}**: {text}" for name, text in STATUSES.items()),
            "",
            table(heads, [*rows, total]),
            "## Reasons of refusals\n",
            table(["cases", "limit"], [[str(count), text] for text, count in sorted_counts(reasons)]),
            "## Cases\n",
            table(["case", "status", "reason"], cases),
        ]
    )


def _note(outcome: Outcome) -> str:
    return outcome.reason if outcome.status == REFUSED else outcome.message


def sorted_counts(counter: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counter.items(), key=lambda pair: (-pair[1], pair[0]))


def table(heads: list[str], rows: Iterable[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", help="run the cases whose name matches, and print them")
    parser.add_argument("--json", metavar="FILE", help="write every outcome with its message")
    given = parser.parse_args(arguments)
    logging.getLogger("epu").setLevel(logging.ERROR)
    chosen = [case for case in all_cases() if re.search(given.only or "", case.name)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [outcome_of(case, str(case.kind)) for case in chosen]
    if given.json:
        Path(given.json).write_text(json.dumps([asdict(each) for each in outcomes], indent=0))
    if given.only:
        for each in outcomes:
            print(f"{each.status:8} {each.seconds:6.2f} s  {each.case}  {each.message}")
    else:
        PAGE.write_text(page(outcomes))
    print(dict(sorted(Counter(each.status for each in outcomes).items())))
    bad = [each for each in outcomes if each.status in (WRONG, CRASHED)]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
