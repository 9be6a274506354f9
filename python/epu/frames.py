"""Results as pandas data frames. Each function takes a compiled job, a run directory or a run record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from epu.errors import UserError
from epu.run_record import record_of

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Rows as a data frame. Raises UserError where pandas is not installed."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise UserError(f"data frames need pandas: {error}. Install it: pip install pandas.") from error
    return pandas.DataFrame([dict(row) for row in rows])


def rows(source: Any) -> DataFrame:
    """Every row of the validation, all modes."""
    return frame(record_of(source)["rows"])


def kernels(source: Any) -> DataFrame:
    """Every kernel: cycles by class, work, what bounds it, its LRM peak."""
    return frame(
        {
            "stage": stage["index"],
            **{name: value for name, value in kernel.items() if name != "cycles"},
            **kernel["cycles"],
        }
        | {"lrm_bytes": peak}
        for stage in record_of(source)["stages"]
        if "kernels" in stage
        for kernel, peak in zip(stage["kernels"], stage["lrm"]["peak"] or [None] * len(stage["kernels"]))
    )


def nodes(source: Any) -> DataFrame:
    """Every ONNX node: depth, placement, reason, kernel."""
    return frame(record_of(source)["nodes"])


def tensors(source: Any) -> DataFrame:
    """Every tensor: type, range and its source, what was seen, risk."""
    return frame(record_of(source)["tensors"])


def ocm(source: Any) -> DataFrame:
    """Every tenant of the OCM: address, bytes, from when to when."""
    return frame(
        {"stage": stage["index"], **tenant} for stage in record_of(source)["stages"] for tenant in stage.get("ocm", ())
    )
