"""The verdict of a validation: gates, summary, the rows as a list, text and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from epu.colour import red
from epu.comparison import Comparison
from epu.graph import Float
from epu.metrics import (
    END_TO_END,
    FIXED_PSNR_GATE_DB,
    INT8_LSB_GATE,
    INT8_MISMATCH_RATE_GATE,
    ISOLATED,
    SEGMENT,
    Row,
    is_code,
    is_real,
)
from epu.ort_reference import cpu_description
from epu.reasons_names import Reason, proven, unexplained
from epu.reports import grid, validation_blocks
from epu.validate import Evidence

if TYPE_CHECKING:
    from pandas import DataFrame

ORT_EXACT_OPS = ("QLinear", "QGemm")  # with rounding="ort" these equal ORT bit for bit


@dataclass(frozen=True, repr=False)
class ValidationResult(Sequence[Row]):
    """Rows of all modes, as a list of dictionaries, with the summary and the verdict.

    ``print(result)`` shows the isolated rows and the summary; ``result.report(mode)`` the rows of another mode.
    """

    model: str
    hw: str
    rounding: str
    evidence: Evidence

    @cached_property
    def rows(self) -> list[Row]:
        return [*(each.row for each in self.evidence.comparisons), *self.evidence.output_rows]

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return repr(self.rows)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython shows as text: the rows would be half a megabyte of it."""
        printer.text(self.summary_table())

    def __str__(self) -> str:
        return f"{self.report(ISOLATED)}\n{self.summary_table()}"

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def failures(self) -> list[str]:
        """One sentence per gate that failed."""
        return list(_failures(self.evidence, self.rounding))

    @property
    def summary(self) -> dict[str, Any]:
        """The numbers of the gates and of the free run."""
        isolated, segment = self._of(ISOLATED), self._of(SEGMENT)
        int8 = [each for each in isolated if is_code(each.type)]
        return {
            "nodes": len(isolated),
            "skipped": _skipped(isolated),
            "int8_elements": sum(each.row["total"] for each in int8),
            "isolated_int8_mismatches": _mismatches(int8),
            "isolated_counted": _counted(int8),
            "isolated_max_lsb": max((each.row["Max Abs Err / ε"] for each in int8), default=0.0),
            "segment_int8_mismatches": _mismatches(each for each in segment if is_code(each.type)),
            "segment_min_psnr_db": _min_psnr(segment),
            "isolated_mismatches": _mismatches(isolated),
            "isolated_reasons": _reasons(isolated),
            "isolated_unexplained": _unexplained(isolated),
            "isolated_explained_percent": _explained_percent(isolated),
            "iss_equals_golden": not self.evidence.golden_differs,
            "end_to_end": {row["Name"]: self._end_to_end(row) for row in self.evidence.output_rows},
            "first_divergence": self.first_divergence,
            "seconds": dict(self.evidence.seconds),
        }

    @property
    def first_divergence(self) -> str | None:
        """The first node output, in model order, that leaves its own gate in the free run; None if none does."""
        free = self._of(END_TO_END)
        return next((each.row["Name"] for each in free if _diverges(each)), None)

    def mse(self, output: str) -> float | None:
        """Mean squared error of a graph output in the free run."""
        return next((row["RMSE"] ** 2 for row in self.evidence.output_rows if row["Name"] == output), None)

    def report(self, mode: str) -> str:
        """The blocks of one mode's rows."""
        rows = [each.row for each in self._of(mode)]
        rows += self.evidence.output_rows if mode == END_TO_END else []
        first = rows[0] if rows else {"rtol": "-", "atol": "-"}
        thresholds = f"rtol={first['rtol']}, atol={first['atol']}"
        return validation_blocks(f"ISS validation results (quantized model, {mode}, {thresholds})", rows)

    def summary_table(self) -> str:
        """The summary as a table, the verdict below."""
        verdict = "\n".join(["FAIL", *self.failures]) if self.failures else "PASS"
        return f"{grid(_summary_lines(self.summary))}\n{verdict}"

    def to_dict(self) -> dict[str, Any]:
        """The form of ``epu validate --json``."""
        return {
            "model": self.model,
            "hw": self.hw,
            "ort_version": self.evidence.ort_version,
            "cpu": cpu_description(),
            "rounding": self.rounding,
            "placement": list(self.evidence.placement),
            "rows": self.rows,
            "summary": self.summary,
        }

    def to_dataframe(self) -> DataFrame:
        """Every row of all modes as a pandas data frame."""
        from epu.frames import frame

        return frame(self.rows)

    def _repr_html_(self) -> str:
        from epu.notebook_html import validation_html

        return validation_html(self)

    def _of(self, mode: str) -> list[Comparison]:
        return [each for each in self.evidence.comparisons if each.mode == mode]

    def _end_to_end(self, row: Row) -> dict[str, Any]:
        floor = self.evidence.floor.get(row["Name"])
        beside = {"one_lsb_floor": _numbers(floor)} if floor else {}
        return {**_numbers(row), **beside}


def _numbers(row: Row) -> dict[str, Any]:
    return {
        "psnr_db": row["PSNR (dB)"],
        "mismatches": row["Bitwise Mismatches"],
        "total": row["total"],
        "max_abs_err": row["Max Abs Err"],
    }


def _failures(evidence: Evidence, rounding: str) -> Iterable[str]:
    isolated = [each for each in evidence.comparisons if each.mode == ISOLATED]
    segment = [each for each in evidence.comparisons if each.mode == SEGMENT]
    if _skipped(isolated):
        names = [each.row["Name"] for each in isolated if each.row["S"] == "SKIPPED"]
        yield f"{len(names)} ONNX node outputs cannot be observed, the first is {names[0]}."
    if evidence.golden_differs:
        names = list(evidence.golden_differs)
        yield f"The ISS differs from golden in {len(names)} tensors, the first is {names[0]}."
    yield from _row_failures("isolated", isolated)
    yield from _row_failures("segment", segment)
    yield from _rate_failure([each for each in isolated if is_code(each.type)])
    if rounding == "ort":
        yield from _ort_failures(isolated)


def _row_failures(mode: str, comparisons: Iterable[Comparison]) -> Iterable[str]:
    failed = [each.row["Name"] for each in comparisons if each.row["S"] == "FAIL"]
    if failed:
        gate = f"at most {INT8_LSB_GATE} LSB on int8, at least {FIXED_PSNR_GATE_DB:g} dB on fixed point"
        yield f"{mode}: {len(failed)} node outputs miss the gate ({gate}), the first is {failed[0]}."


def _rate_failure(int8: list[Comparison]) -> Iterable[str]:
    elements, wrong = sum(each.row["total"] for each in int8), _counted(int8)
    if wrong > max(1, INT8_MISMATCH_RATE_GATE * elements):  # below a million elements, one is no rate
        yield (
            f"isolated: {wrong} of {elements} int8 elements differ from ORT ({wrong / elements:.2e}) "
            "where it is not ORT that is proven to be off, "
            f"the gate is {INT8_MISMATCH_RATE_GATE:g}, or one element."
        )


def _ort_failures(isolated: list[Comparison]) -> Iterable[str]:
    exact = [e for e in isolated if e.output.op.startswith(ORT_EXACT_OPS) and is_code(e.type)]
    wrong = [e for e in exact if e.row["Bitwise Mismatches"]]
    if wrong:
        yield (
            f"isolated with rounding='ort': {len(wrong)} QLinear/QGemm nodes differ from ORT, "
            f"the first is {wrong[0].row['Name']}."
        )


def _diverges(each: Comparison) -> bool:
    if is_real(each.type) or isinstance(each.type, Float):
        return each.psnr_db < FIXED_PSNR_GATE_DB
    return bool(each.row["Bitwise Mismatches"])


def _skipped(comparisons: Iterable[Comparison]) -> int:
    return sum(each.row["S"] == "SKIPPED" for each in comparisons)


def _counted(int8: Iterable[Comparison]) -> int:
    """Mismatches but those in which the ISS is proven to hold the correctly rounded exact result."""
    return sum(each.row["Bitwise Mismatches"] - proven(each.row["reasons"]) for each in int8)


def _reasons(comparisons: Iterable[Comparison]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in comparisons:
        total.update(each.row["reasons"])
    return {reason.label: total[reason.label] for reason in Reason if total[reason.label]}


def _unexplained(comparisons: Iterable[Comparison]) -> int:
    return sum(unexplained(each.row["reasons"]) for each in comparisons)


def _explained_percent(comparisons: Sequence[Comparison]) -> float:
    mismatches = _mismatches(comparisons)
    return 100.0 * (1 - _unexplained(comparisons) / mismatches) if mismatches else 100.0


def _mismatches(comparisons: Iterable[Comparison]) -> int:
    return sum(each.row["Bitwise Mismatches"] for each in comparisons)


def _min_psnr(comparisons: Iterable[Comparison]) -> float:
    fixed = [each.psnr_db for each in comparisons if is_real(each.type)]
    return min(fixed, default=float("inf"))


def _summary_lines(summary: dict[str, Any]) -> Iterable[tuple[str, str]]:
    elements, wrong = summary["int8_elements"], summary["isolated_int8_mismatches"]
    yield "Node outputs compared", f"{summary['nodes']}, skipped {summary['skipped']}"
    counted = f"{summary['isolated_counted']} count" if wrong else ""
    parts = (f"{wrong} of {elements:,}", counted, f"at most {summary['isolated_max_lsb']:g} LSB")
    yield "Isolated int8 mismatches", ", ".join(part for part in parts if part)
    yield "Isolated mismatches explained", _explained_line(summary)
    yield "Segment int8 mismatches", str(summary["segment_int8_mismatches"])
    yield "Segment lowest PSNR, fixed point", f"{summary['segment_min_psnr_db']:.1f} dB"
    yield "ISS equals golden", "yes" if summary["iss_equals_golden"] else "NO"
    for name, numbers in summary["end_to_end"].items():
        yield f"End to end, {name}", _free_run(numbers)
        if "one_lsb_floor" in numbers:
            yield "  ORT itself, one input element 1 LSB off", _free_run(numbers["one_lsb_floor"])
    yield "First divergence in the free run", str(summary["first_divergence"] or "none")
    yield "Seconds ISS, ORT (one thread)", f"{summary['seconds']['iss']:.3f}, {summary['seconds']['ort']:.3f}"


def _explained_line(summary: dict[str, Any]) -> str:
    left = summary["isolated_unexplained"]
    line = f"{summary['isolated_explained_percent']:.6g} % of {summary['isolated_mismatches']:,}"
    return red(f"{line}, {left} unexplained") if left else line


def _free_run(numbers: dict[str, Any]) -> str:
    share = 100 * numbers["mismatches"] / numbers["total"] if numbers["total"] else 0.0
    return f"{numbers['psnr_db']:.2f} dB, {share:.2f} % mismatches, max error {numbers['max_abs_err']:.4g}"
