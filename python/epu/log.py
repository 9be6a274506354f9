"""The log of EPU: one format for every stage, on standard error unless the application configures logging itself."""

from __future__ import annotations

import logging
import sys

FORMAT = "%(asctime)s - %(levelname)s - %(stage)s - %(message)s"
DATE_FORMAT = "%Y-%m-%d %H:%M"


class StageFormatter(logging.Formatter):
    """Formats a record of logger ``epu.quantize`` as ``2026-07-18 12:09 - INFO - epu - quantize - message``."""

    def __init__(self) -> None:
        super().__init__(FORMAT, DATE_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        record.stage = record.name.replace(".", " - ")
        return super().format(record)


class _Console(logging.Handler):
    """Writes to what ``sys.stderr`` is now (notebooks replace it), and only where the application's handlers do not."""

    def filter(self, record: logging.LogRecord) -> bool:
        shown_elsewhere = _is_configured(logging.getLogger())
        logging.getLogger("epu").propagate = shown_elsewhere  # read after this handler, for the same record
        return not shown_elsewhere and bool(super().filter(record))

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(self.format(record) + "\n")


def _is_configured(root: logging.Logger) -> bool:
    """Whether the application chose how logs are shown. ``logging.debug`` anywhere, as in TVM's ONNX importer, calls
    basicConfig() without arguments, which is nobody's choice."""
    chosen = root.level != logging.WARNING or not all(_is_default(handler) for handler in root.handlers)
    return bool(root.handlers) and chosen


def _is_default(handler: logging.Handler) -> bool:
    format = handler.formatter._fmt if handler.formatter else None
    return type(handler) is logging.StreamHandler and format == logging.BASIC_FORMAT


def get_logger(stage: str) -> logging.Logger:
    """Return the logger ``epu.<stage>``, e.g. ``get_logger("quantize")``.

    The first call gives ``epu`` a console handler and level INFO; ``logging.getLogger("epu").setLevel`` changes it.
    """
    root = logging.getLogger("epu")
    if not root.handlers:
        handler = _Console()
        handler.setFormatter(StageFormatter())
        root.addHandler(handler)
    if root.level == logging.NOTSET:
        root.setLevel(logging.INFO)
    return root.getChild(stage)
